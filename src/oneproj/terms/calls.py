"""How the user's functions are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError


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
            hint = self._misfit(batch) or _precision(error)
            error.add_note(f"In the function of {name!r}{given}.{hint}")
            raise

    def _misfit(self, batch: tuple[object, ...]) -> str:
        """What to change if the function takes other arguments than it is given."""
        fn = self._fn.forward if isinstance(self._fn, torch.nn.Module) else self._fn
        try:
            inspect.signature(fn).bind(*batch)
        except TypeError:
            if batch:
                return " It is called with one argument, the batch: inputs, y = batch."
            return " It is called without arguments; oneproj.mean(fn, data) has data."
        except ValueError:  # some builtins have no signature
            return ""
        return ""

    def _value(self, *batch: object) -> object:
        if torch.is_grad_enabled():
            return self._fn(*batch)
        if not self._differentiates:
            try:
                return self._fn(*batch)
            except RuntimeError:
                value = self._with_graph(*batch)  # raises again, if that is not it
                self._differentiates = True
                return value
        return self._with_graph(*batch)

    @torch.enable_grad()
    def _with_graph(self, *batch: object) -> object:
        value = self._fn(*batch)
        return value.detach() if isinstance(value, Tensor) else value


def _precision(error: Exception) -> str:
    """What to change if numbers of two precisions met."""
    if isinstance(error, RuntimeError) and "dtype" in str(error):
        return (
            " NumPy's numbers are float64 as a rule, and torch's models float32: "
            "convert the data (.float(), .astype(np.float32)) or the model (.double())."
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
