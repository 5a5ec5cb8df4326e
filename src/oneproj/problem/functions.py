"""How the user's functions are called.

A scalar function of the parameters, as a term without data.

The average of a quantity over a data set, as a term.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor, check_count
from oneproj.errors import InvalidProblemError
from oneproj.problem.autograd import check_real
from oneproj.problem.data import AbstractSource, DataLike, as_source, changes
from oneproj.problem.expressions import AbstractExpression
from oneproj.problem.float64 import call_as_asked, is_computing_in_float64
from oneproj.problem.modes import evaluating
from oneproj.problem.terms import Curvature, Survey, accumulate, check_curvature
from oneproj.vectors.arithmetic import Vector


class Call:
    """A user's function, called in the mode that it needs; its errors name the term.

    A function that differentiates inside, for a bound on slopes or the residual of a
    differential equation, needs a graph also where only its value is asked for. Whether
    it does shows when it fails without.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> slope = Call(lambda: torch.autograd.grad(x.square().sum(), x)[0].norm())
        >>> with torch.no_grad():
        ...     slope("slope").requires_grad
        False
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        """Keep the function; refuse what cannot be called before a run tries to."""
        if not callable(fn):
            message = (
                f"A term is made of a function that returns a tensor, but got a "
                f"{type(fn).__name__}. Pass the function: oneproj.mean(losses, "
                "data=...)."
            )
            raise InvalidProblemError(message)
        self._fn, self._differentiates = fn, False

    def __call__(self, name: str, *batch: object) -> object:
        """What the function returns for the batch, if it takes one."""
        try:
            return self._value(*batch)
        except Exception as error:
            given = f", for {_describe(batch[0])}" if batch else ""
            where = f"In the function of {name!r}{given}"
            cause = self._misfit(batch) or _two_precisions(error) or _lone_norm(error)
            if cause:
                message = f"{where}: {error}. {cause}"
                raise InvalidProblemError(message) from error
            error.add_note(f"{where}.")
            raise

    def _misfit(self, batch: tuple[object, ...]) -> str:
        """What to change if the function takes other arguments than it is given."""
        fn = self._fn.forward if isinstance(self._fn, torch.nn.Module) else self._fn
        try:
            inspect.signature(fn).bind(*batch)
        except TypeError:
            if batch:
                return (
                    "The function is called with one argument, the batch, which has "
                    "the structure of the data. Take it apart inside: def losses("
                    "batch): inputs, y = batch."
                )
            return (
                "The function is called without arguments; oneproj.mean(fn, data) is "
                "for one that takes a batch of data."
            )
        except ValueError:  # some builtins have no signature
            return ""
        return ""

    def _value(self, *batch: object) -> object:
        if torch.is_grad_enabled():
            return call_as_asked(self._fn, *batch)
        if not self._differentiates:
            try:
                return call_as_asked(self._fn, *batch)
            except RuntimeError:
                value = self._with_graph(*batch)  # raises again, if that is not it
                self._differentiates = True
                return value
        return self._with_graph(*batch)

    @torch.enable_grad()
    def _with_graph(self, *batch: object) -> object:
        value = call_as_asked(self._fn, *batch)
        return value.detach() if isinstance(value, Tensor) else value


def _two_precisions(error: Exception) -> str:
    """What to change if numbers of two precisions met, as torch says it."""
    named = re.findall("double|bfloat16|half|float16|float64|float", str(error).lower())
    same = {"float64": "double", "float16": "half"}
    if not isinstance(error, RuntimeError) or len({same.get(n, n) for n in named}) < 2:  # noqa: PLR2004 - a pair
        return ""
    return (
        "Numbers of two precisions met: NumPy's are float64 as a rule, and torch's "
        "models float32. Convert the data (.float(), .astype(np.float32)) or the model "
        "(.double())."
    )


def _lone_norm(error: Exception) -> str:
    """What to change if batch norm was given one example in training mode."""
    if "more than 1 value per channel when training" not in str(error):
        return ""
    return (
        "Batch norm in training mode normalises by the mean and variance of the batch, "
        "and one example has no variance. Give batch_size=2 or more, and more than one "
        "example of data, or call eval() on the norm to keep its running statistics."
    )


def _describe(batch: object) -> str:
    """The dtypes and shapes of a batch.

    Example:
        >>> _describe((torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)))
        '(float32 [2, 3], int64 [2])'
    """
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {list(batch.shape)}"
    if isinstance(batch, Mapping):
        items = (f"{key!r}: {_describe(value)}" for key, value in batch.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(batch, list | tuple):
        return "(" + ", ".join(map(_describe, batch)) + ")"
    return f"a {type(batch).__name__}"


class Function(AbstractExpression):
    """A scalar function of the parameters alone; made by ``oneproj.function``."""

    def __init__(
        self, fn: Callable[[], Tensor], curvature: Curvature | None = None
    ) -> None:
        """Keep the function and what is known of it."""
        self._call = Call(fn)
        self.curvature = check_curvature(curvature)

    def __repr__(self) -> str:
        return "function of the parameters"

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # there is nothing to sample: every evaluation is exact
        value = self._call(self.name)
        if isinstance(value, Tensor) and value.numel() == 1:
            return check_real(self.name, value).reshape(())
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value)
        message = (
            f"The function of {self.name!r} must return a scalar tensor, but returned "
            f"{got}. Use oneproj.mean for a quantity averaged over data."
        )
        raise InvalidProblemError(message)

    @torch.no_grad()
    def value(self) -> float:
        with evaluating(self.model):
            value = float(self.batch_value(None).double())
        self.check_finite(value)
        return value

    @torch.enable_grad()
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        with evaluating(self.model):
            value = self.batch_value(None)
        gradient = [torch.zeros_like(p) for p in parameters]
        accumulate(gradient, value, parameters)
        self.check_finite(float(value.detach()), gradient)
        return float(value.detach().double()), gradient


def function(
    fn: Callable[[], Tensor], *, curvature: Curvature | None = None
) -> Function:
    """A scalar function of the parameters, evaluated without data.

    Args:
        fn: Returns a scalar tensor.
        curvature: ``"convex"``, ``"concave"`` or ``"linear"`` in the parameters, where
            that is known: a constraint declared convex is projected onto exactly.

    Example:
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> size = function(lambda: w.norm())
        >>> size.value(), (size <= 4.0).value(), (size >= 4.0).value()
        (5.0, 1.0, -1.0)
        >>> size
        function of the parameters
    """
    return Function(fn, curvature)


CHUNK_SIZE = 4096
"""Examples per forward pass of a full evaluation, unless the term says otherwise."""


class Mean(AbstractExpression):
    """The average ``(1/n) sum_i w_i fn(example_i)``; made by ``oneproj.mean``."""

    _dtype: torch.dtype | None = None

    def __init__(
        self,
        fn: Callable[[Any], Tensor],
        source: AbstractSource,
        weights: Tensor | None,
        chunk_size: int,
        curvature: Curvature | None,
    ) -> None:
        """Keep the function and where its examples come from."""
        self.size = source.size
        # Who asks for smaller chunks has examples that take more than their rows do.
        self.tabular = source.tabular and chunk_size >= CHUNK_SIZE
        self._call = Call(fn)
        self._tried = False
        self._source = source
        self._weights = weights
        self._chunk_size = chunk_size
        self.curvature = check_curvature(curvature)

    def __repr__(self) -> str:
        return f"mean over {self.size} example{'s' if self.size != 1 else ''}"

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        return self._source.draw(batch_size, generator)

    def precision(self) -> torch.dtype | None:
        return self._dtype

    def batch_value(self, indices: Tensor | None) -> Tensor:
        if indices is not None:
            return self.examples(indices).mean()
        n = self._source.size
        values = self._values(self._read(self._source.span, 0, n), n)
        weights = self._weights
        return (values if weights is None else values * weights.to(values)).mean()

    def examples(self, indices: Tensor) -> Tensor:
        values = self._values(self._read(self._source.take, indices), len(indices))
        if self._weights is None:
            return values
        return values * self._weights[indices].to(values)

    def value(self) -> float:
        return self._value(None)

    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        return self._value_and_gradient(parameters, None)

    def survey(self, parameters: Vector | None) -> Survey:
        kept: list[Tensor] = []
        if parameters is None:
            return Survey(self._value(kept), None, torch.cat(kept))
        value, gradient = self._value_and_gradient(parameters, kept)
        return Survey(value, gradient, torch.cat(kept))

    @torch.no_grad()
    def _value(self, kept: list[Tensor] | None) -> float:
        with evaluating(self.model):
            value = self._average([float(chunk) for chunk in self._sums(kept)])
        self.check_finite(value)
        return value

    @torch.enable_grad()
    def _value_and_gradient(
        self, parameters: Vector, kept: list[Tensor] | None
    ) -> tuple[float, list[Tensor]]:
        total = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
        sums = []
        with evaluating(self.model):
            for chunk in self._sums(kept):
                sums.append(float(chunk.detach()))
                accumulate(total, chunk / self._source.size, parameters)
        gradient = [t.to(p.dtype) for t, p in zip(total, parameters, strict=True)]
        value = self._average(sums)
        self.check_finite(value, gradient)
        return value, gradient

    def _average(self, sums: list[float]) -> float:
        try:
            return math.fsum(sums) / self._source.size
        except (OverflowError, ValueError):  # how fsum says inf, and inf - inf
            return math.nan

    def _sums(self, kept: list[Tensor] | None) -> Iterator[Tensor]:
        """The sum of every chunk; the values of its examples are kept if asked to."""
        for start, stop in self._source.spans(self._chunk_size):
            batch = self._read(self._source.span, start, stop)
            values = self._values(batch, stop - start)
            wide = values.double()
            if self._weights is not None:
                wide = wide * self._weights[start:stop].to(wide)
            if kept is not None:
                kept.append(wide.detach().to(values.dtype))
            yield wide.sum()

    def _read(self, read: Callable[..., Any], *where: Tensor | int) -> Any:  # noqa: ANN401 - a batch
        try:
            return read(*where)
        except Exception as error:
            error.add_note(f"In the data of {self.name!r}, where a batch is made.")
            raise

    def _values(self, batch: Any, count: int) -> Tensor:  # noqa: ANN401 - the user's
        """The value of each example; the first time, the batch must stay as it is."""
        if self._tried:
            return self._check_shape(self._call(self.name, batch), count)
        before, values = changes(batch), self._call(self.name, batch)
        if changes(batch) != before:
            message = (
                f"The function of {self.name!r} changes its batch in place (x -= mean, "
                "x.mul_(2) or the like). A full pass lends it the data itself, which "
                "would be another after every pass. Write x = x - mean instead, or "
                "work on x.clone()."
            )
            raise InvalidProblemError(message)
        self._tried = True
        return self._check_shape(values, count)

    def _check_shape(self, values: object, count: int) -> Tensor:
        if isinstance(values, Tensor) and values.shape == (count,):
            if not is_computing_in_float64():
                self._dtype = values.dtype
            return check_real(self.name, values)
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values)
        square = got == (count, count)
        pairs = ", as scores (n, 1) with labels (n,) do" if square else ""
        message = (
            f"The function of {self.name!r} must return one value per example, shape "
            f"({count},) for a batch of {count}, but returned {got}{pairs}. Return "
            'per-example losses (reduction="none", squeeze a trailing dimension): '
            "the library takes the mean itself, so that chunks can be added exactly."
        )
        raise InvalidProblemError(message)


def mean(
    fn: Callable[[Any], Tensor],
    data: DataLike,
    *,
    weights: TensorLike | None = None,
    chunk_size: int = CHUNK_SIZE,
    curvature: Curvature | None = None,
) -> Mean:
    """The average of ``fn`` over a data set: ``(1/n) sum_i w_i fn(example_i)``.

    Args:
        fn: Takes one argument, a batch made like the data (a tuple of rows for a tuple
            of tensors), and returns one value per example, shape ``(batch,)``. It must
            not change the batch in place, which may be the data itself.
        data: A tensor or array, a tuple or dict of them, a ``Dataset`` or a
            ``DataLoader``. Nothing is copied or converted: dtypes stay, also the
            float64 that arrays have as a rule. A loader stands for the examples that
            its sampler goes through, in whatever order, each once, those that
            ``drop_last`` leaves out of an epoch included. A sampler that prefers some,
            or gives this process a share, is refused.
        weights: One weight per example, 1 when left out. The sum is divided by n, not
            by theirs: for the mean of a group pass its rows as data, or weights that
            average 1.
        chunk_size: Examples per forward pass of a full evaluation.
        curvature: ``"convex"``, ``"concave"`` or ``"linear"`` in the parameters, where
            that is known (a convex loss of linear scores, for example): a constraint
            declared convex is projected onto exactly.

    Example:
        >>> x, w = torch.tensor([1.0, 2.0, 6.0]), torch.tensor(2.0, requires_grad=True)
        >>> total = mean(lambda batch: w * batch, data=x)
        >>> total, total.value()
        (mean over 3 examples, 6.0)
        >>> mean(lambda batch: w * batch, data=x, weights=torch.ones(3) / 2).value()
        3.0
    """
    source = as_source(data)
    chunk = "A full pass looks at so many examples together: fewer take less memory."
    chunk_size = check_count("chunk_size", chunk_size, chunk)
    each = None if weights is None else _as_weights(weights, source.size)
    return Mean(fn, source, each, chunk_size, curvature)


def _as_weights(weights: object, size: int) -> Tensor:
    given = as_tensor("weights", weights)
    if given.shape != (size,) or not bool(torch.isfinite(given).all()):
        bad = int((~torch.isfinite(given)).sum())
        message = (
            f"weights must be {size} finite numbers, one per example, but got shape "
            f"{tuple(given.shape)} with {bad} NaN or infinite value(s)."
        )
        raise InvalidProblemError(message)
    if not bool(given.any()):
        message = (
            f"All {size} weights are 0: the term would be 0 whatever the parameters "
            "are. Leave the term out, or the weights for 1."
        )
        raise InvalidProblemError(message)
    return given
