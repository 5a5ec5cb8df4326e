"""The terms that users write: ``mean`` and ``largest`` over data, and ``function``."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor, check_count
from oneproj.errors import InvalidProblemError
from oneproj.problem.autograd import accumulate
from oneproj.problem.data import DataLike, Source, as_source, changes
from oneproj.problem.float64 import FLOAT64_MODE
from oneproj.problem.modes import evaluating
from oneproj.problem.terms import AbstractExpression, Curvature, FullPass
from oneproj.vectors.arithmetic import Vector

CHUNK_SIZE = 4096
"""Examples per forward pass of a full evaluation, unless the term says otherwise."""


class Call:
    """A function of the user, whose errors name the term that it belongs to.

    A function that differentiates inside, for a bound on slopes or the residual of a
    differential equation, needs a graph even if only its value is asked for. It is
    recognised by its failure without one.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> slope = Call(lambda: torch.autograd.grad(x.square().sum(), x)[0].norm())
        >>> with torch.no_grad():
        ...     slope("slope").requires_grad
        False
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        """Keep the function; refuse what cannot be called."""
        if not callable(fn):
            message = (
                "A term is made of a function that returns a tensor, but got a "
                f"{type(fn).__name__}. Pass the function: oneproj.mean(losses, data)."
            )
            raise InvalidProblemError(message)
        self._fn, self._differentiates = fn, False

    def __call__(self, name: str, *batch: object) -> object:
        """Return what the function returns for the batch, if it takes one."""
        try:
            mode, recording = FLOAT64_MODE.get(), torch.is_grad_enabled()
            fn = self._fn if mode is None else mode.around(self._fn)
            if recording or not self._differentiates:
                try:
                    return fn(*batch)
                except RuntimeError:
                    if recording:
                        raise
            with torch.enable_grad():
                value = fn(*batch)  # raises again, if a graph is not what it lacks
            self._differentiates = True
            return value.detach() if isinstance(value, Tensor) else value
        except Exception as error:
            given = f"one argument, the batch {_describe(batch[0])}" if batch else None
            called = f"called with {given or 'no arguments'}"
            error.add_note(f"In the function of {name!r}, {called}.{_advice(error)}")
            raise


def _advice(error: Exception) -> str:
    """What to try after two common mistakes; "" for other errors."""
    if isinstance(error, TypeError) and "positional argument" in str(error):
        return " Take the batch apart inside: def losses(batch): x, y = batch."
    if isinstance(error, RuntimeError) and "dtype" in str(error):
        return (
            " NumPy's numbers are float64 as a rule, torch's models float32: convert "
            "the data (.float(), .astype(np.float32)) or the model (.double())."
        )
    return ""


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


def _check_real(name: str, value: Tensor) -> Tensor:
    """Refuse values without a gradient: integers, bools, complex numbers."""
    if value.is_floating_point():
        return value
    message = (
        f"The function of {name!r} returned values of dtype {value.dtype}, but only "
        "real floating-point ones can be optimised. Counts and accuracies have no "
        "gradient: oneproj.rates bounds them."
    )
    raise InvalidProblemError(message)


def _check_curvature(curvature: Curvature | None) -> Curvature | None:
    if curvature in (None, "convex", "concave", "linear"):
        return curvature
    message = (
        'curvature must be "convex", "concave", "linear" or None, got '
        f"{curvature!r}. It declares the shape of the term in the parameters."
    )
    raise InvalidProblemError(message)


class Function(AbstractExpression):
    """A scalar function of the parameters alone; made by ``oneproj.function``."""

    def __init__(
        self, fn: Callable[[], Tensor], curvature: Curvature | None = None
    ) -> None:
        """Keep the function and its declared curvature."""
        self._call = Call(fn)
        self.curvature = _check_curvature(curvature)

    def __repr__(self) -> str:
        return "function of the parameters"

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # without data every evaluation is exact
        value = self._call(self.name)
        if isinstance(value, Tensor) and value.numel() == 1:
            return _check_real(self.name, value).reshape(())
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value)
        message = (
            f"The function of {self.name!r} must return a scalar tensor, but returned "
            f"{got}. Use oneproj.mean for a quantity averaged over data."
        )
        raise InvalidProblemError(message)

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        del each  # there are no examples
        with torch.set_grad_enabled(parameters is not None):
            with evaluating(self.model):
                value = self.batch_value(None)
            gradient = None
            if parameters is not None:
                gradient = [torch.zeros_like(p) for p in parameters]
                accumulate(gradient, value, parameters)
        number = float(value.detach().double())
        self.check_finite(number, gradient or ())
        return FullPass(number, gradient, None)


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


class Mean(AbstractExpression):
    """The average ``(1/n) sum_i w_i fn(example_i)``; made by ``oneproj.mean``."""

    _dtype: torch.dtype | None = None

    def __init__(
        self,
        fn: Callable[[Any], Tensor],
        source: Source,
        weights: Tensor | None,
        chunk_size: int,
        curvature: Curvature | None,
    ) -> None:
        """Keep the function and its data."""
        self.size = source.size
        # Smaller chunks are asked for if an example needs more memory than its row.
        self.tabular = source.tabular and chunk_size >= CHUNK_SIZE
        self.curvature = _check_curvature(curvature)
        self._call, self._tried = Call(fn), False
        self._source, self._weights = source, weights
        self.chunk_size: int = chunk_size

    def __repr__(self) -> str:
        return f"mean over {self.size} example{'s' if self.size != 1 else ''}"

    def of_rows(self, rows: Tensor) -> Mean:
        """The average over these rows of the data alone."""
        part = copy.copy(self)
        part._source = self._source.of_rows(rows)  # noqa: SLF001 - its own class
        part.size = part._source.size  # noqa: SLF001
        return part

    def read_rows(self) -> tuple[tuple[Source, Tensor | None], ...]:
        return ((self._source, None),)

    def precision(self) -> torch.dtype | None:
        return self._dtype

    def batch_value(self, indices: Tensor | None) -> Tensor:
        return self.examples(indices).mean()

    def examples(self, indices: Tensor | None) -> Tensor:
        at = slice(0, self._source.size) if indices is None else indices
        count = self._source.size if indices is None else len(indices)
        values = self._values(self._made(lambda: self._source.read(at)), count)
        if self._weights is None:
            return values
        weights = self._weights if indices is None else self._weights[indices]
        return values * weights.to(values)

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        kept: list[Tensor] | None = [] if each else None
        sums, gradient = [], None
        # A single chunk is added to nothing: in float64 it would only take memory.
        wide_sums = torch.float64 if self._source.size > self.chunk_size else None
        totals = [torch.zeros_like(p, dtype=wide_sums) for p in parameters or ()]
        with torch.set_grad_enabled(parameters is not None), evaluating(self.model):
            batches = self._source.batches(self.chunk_size)
            while (found := self._made(lambda: next(batches, None))) is not None:
                chunk, batch = found
                values = self._values(batch, chunk.stop - chunk.start)
                wide = values.double()
                if self._weights is not None:
                    wide = wide * self._weights[chunk].to(wide)
                if kept is not None:
                    kept.append(wide.detach().to(values.dtype))
                total = wide.sum()
                sums.append(float(total.detach()))
                if parameters is not None:
                    accumulate(totals, total / self._source.size, parameters)
        if parameters is not None:
            gradient = [t.to(p.dtype) for t, p in zip(totals, parameters, strict=True)]
        try:
            value = math.fsum(sums) / self._source.size
        except (OverflowError, ValueError):  # what fsum raises for inf and inf - inf
            value = math.nan
        self.check_finite(value, gradient or ())
        return FullPass(value, gradient, None if kept is None else torch.cat(kept))

    def _made(self, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - the user's batch
        """Make a batch; an error says where it happened."""
        try:
            return make()
        except Exception as error:
            error.add_note(f"In the data of {self.name!r}, where a batch is made.")
            raise

    def _values(self, batch: Any, count: int) -> Tensor:  # noqa: ANN401 - the user's
        """The value of each of so many examples, without weights."""
        before = 0 if self._tried else changes(batch)
        values = self._call(self.name, batch)
        if not self._tried and changes(batch) != before:
            message = (
                f"The function of {self.name!r} changes its batch in place (x -= mean, "
                "x.mul_(2) or the like), which may be the data itself. Write x = x - "
                "mean instead, or work on x.clone()."
            )
            raise InvalidProblemError(message)
        self._tried = True
        if isinstance(values, Tensor) and values.shape == (count,):
            if FLOAT64_MODE.get() is None:
                self._dtype = values.dtype
            return _check_real(self.name, values)
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
            ``drop_last`` leaves out of an epoch included; its workers read ahead in
            full passes. A sampler that prefers some,
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
    chunk = "It is the number of examples per forward pass: fewer take less memory."
    chunk_size = check_count("chunk_size", chunk_size, chunk)
    each = None if weights is None else _as_weights(weights, source.size)
    return Mean(fn, source, each, chunk_size, curvature)


def _as_weights(weights: object, size: int) -> Tensor:
    given = as_tensor("weights", weights, finite=True)
    if given.shape != (size,) or not bool(given.any()):
        message = (
            f"weights must be {size} numbers, one per example and not all 0, but got "
            f"shape {tuple(given.shape)} with {int((given == 0).sum())} zeros."
        )
        raise InvalidProblemError(message)
    return given


class Largest(AbstractExpression):
    """The mean of the largest values over data; made by ``oneproj.largest``."""

    def __init__(self, each: Mean, count: int) -> None:
        """Keep the mean whose largest values count, and how many of them do."""
        self._each, self._count = each, count
        self._rows: list[int] = []
        """All rows, the largest first, at the last evaluation."""
        self.tabular = each.tabular
        # A maximum of linear functions is convex, one of concave functions is neither.
        self.curvature = None if each.curvature in (None, "concave") else "convex"

    def __repr__(self) -> str:
        few = "" if self._count == 1 else f"mean of the {self._count} "
        return f"{few}largest of {self._each.size} examples"

    def named(self, name: str, model: torch.nn.Module | None = None) -> Self:
        renamed = super().named(name, model)
        renamed._each = self._each.named(name, model)  # noqa: SLF001 - its own class
        return renamed

    @property
    def has_data(self) -> bool:
        return True

    def read_rows(self) -> tuple[tuple[Source, Tensor | None], ...]:
        return self._each.read_rows()

    def precision(self) -> torch.dtype | None:
        return self._each.precision()

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # a minibatch says little about the largest values
        return self._each.examples(self._order()[0][: self._count]).mean()

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        del each  # the value is not the mean over all examples
        order, values = self._order()
        gradient = None
        if parameters is not None:
            worst = self._each.of_rows(order[: self._count])
            gradient = worst.full_pass(parameters, each=False).gradient
        return FullPass(float(values[: self._count].mean()), gradient, None)

    def parts(self, most: int) -> dict[tuple[int, ...], Mean]:
        """Return means over as many rows, which are nowhere above this term.

        The first is over the rows that were the largest at the last evaluation, and has
        the value and gradient of this term there. In the others the next largest rows
        take the place of the last of those.

        Args:
            most: How many to return, at most.

        Returns:
            The means, by their rows.
        """
        k = self._count - 1
        chosen = [(*self._rows[:k], row) for row in self._rows[k : k + most]]
        return {
            tuple(sorted(part)): self._each.of_rows(torch.tensor(part, device="cpu"))
            for part in chosen
        }

    def _order(self) -> tuple[Tensor, Tensor]:
        """All rows, the largest first, and their values in float64."""
        everyone = torch.arange(self._each.size or 0, device="cpu")
        with torch.no_grad():
            values = self._each.full_pass(None).examples(everyone)
        found = values.double().cpu().sort(descending=True, stable=True)
        self._rows = found.indices.tolist()
        return found.indices, found.values


def largest(
    fn: Callable[[Any], Tensor],
    data: DataLike,
    *,
    count: int = 1,
    chunk_size: int = CHUNK_SIZE,
    curvature: Curvature | None = None,
) -> Largest:
    """The largest value of ``fn`` over a data set, or the mean of the largest few.

    ``largest(...) <= bound`` bounds every example, and with a ``count`` the mean over
    the worst ones (a conditional value at risk). ``project`` then projects onto the
    bounds of the few examples that matter, and adds others as they become the largest.
    Written as an ``oneproj.function`` that takes the maximum, the same constraint shows
    one example's gradient at a time.

    Every evaluation goes through all of the data, also in an update of ``solve``; only
    the largest examples are differentiated.

    Args:
        fn: Takes a batch, returns one value per example, as that of ``oneproj.mean``.
        data: As for ``oneproj.mean``.
        count: How many of the largest values are averaged; 1 for the maximum.
        chunk_size: Examples per forward pass of a full evaluation.
        curvature: That of each example's value in the parameters. The largest of convex
            or linear ones is convex.

    Example:
        >>> x, w = torch.tensor([1.0, 2.0, 6.0]), torch.tensor(2.0, requires_grad=True)
        >>> worst = largest(lambda batch: w * batch, data=x, count=2)
        >>> worst, worst.value()
        (mean of the 2 largest of 3 examples, 8.0)
        >>> (largest(lambda batch: w * batch, data=x) <= 10.0).value()
        2.0
    """
    each = mean(fn, data, chunk_size=chunk_size, curvature=curvature)
    count = check_count("count", count, "It counts the largest values to average.")
    size = each.size or 0
    if count > size:
        message = (
            f"The mean of the {count} largest values needs as many examples, but the "
            f"data has {size}. Take count={size} for the mean over all of them."
        )
        raise InvalidProblemError(message)
    return Largest(each, count)
