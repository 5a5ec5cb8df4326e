"""How the user's functions are called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.terms.float64 import call_as_asked


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
