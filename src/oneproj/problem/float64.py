"""Evaluating constraints once more in float64, whatever precision they compute in.

A torch function mode replaces every floating-point tensor that a function reads by its
float64 copy, and every narrower dtype that it names by float64. That covers closures,
modules, captured tensors and casts inside the function. The user's model does not
change: a function that writes in place writes into the copies.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from oneproj.errors import OneprojError, warn
from oneproj.problem.autograd import fresh_casts
from oneproj.problem.modes import before_calls
from oneproj.problem.terms import AbstractTerm

CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}
"""Methods that name a narrower dtype by their own name."""


class NotInFloat64(OneprojError):  # noqa: N818 - a reason, which no user meets
    """A function cannot be computed in float64; the message says why."""


class Float64Mode(TorchFunctionMode):
    """Makes torch functions compute in float64.

    A tensor has one float64 copy for as long as the mode lasts: reads see earlier
    in-place writes, and gradients belong to the tensors that were used. Integers,
    complex numbers and metadata are not converted.

    Example:
        >>> third = torch.tensor(1.0) / 3.0
        >>> with Float64Mode():
        ...     wide = (third * 3.0).item()
        >>> (third * 3.0).item(), wide
        (1.0, 1.0000000298023224)
    """

    def __init__(self) -> None:
        """Begin without copies."""
        super().__init__()
        self._copies = WeakTensorKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Call the function with float64 arguments and return float64 results."""
        del types
        func = Tensor.double if func in CASTS else func
        args, kwargs = self._wide(args), self._wide(kwargs or {})
        if not _may_draw(func):
            return self._wide(func(*args, **kwargs))
        message = "it draws random numbers, which would be others in float64"
        if kwargs.get("generator") is not None:
            raise NotInFloat64(message)
        before = torch.get_rng_state()
        found = self._wide(func(*args, **kwargs))
        if not torch.equal(before, torch.get_rng_state()):
            raise NotInFloat64(message)
        return found

    def around(self, fn: Callable[..., object]) -> Callable[..., object]:
        """The function, computed in this mode; modules are left as they were.

        Example:
            >>> wide = Float64Mode().around(torch.add)
            >>> wide(torch.ones(1), torch.ones(1)).dtype
            torch.float64
        """

        def call(*batch: object) -> object:
            with _unchanged_modules(), self:
                found = fn(*batch)
            if isinstance(found, Tensor) and _is_narrow(found.dtype):
                message = "its operations cannot be seen, as in a scripted function"
                raise NotInFloat64(message)
            return found

        return call

    def _wide(self, given: Any) -> Any:  # noqa: ANN401 - any argument or result
        if isinstance(given, Tensor):
            return self._copy(given) if _is_narrow(given.dtype) else given
        if isinstance(given, torch.dtype):
            return torch.float64 if _is_narrow(given) else given
        if isinstance(given, dict):
            return {key: self._wide(value) for key, value in given.items()}
        if type(given) in (tuple, list):
            return type(given)(map(self._wide, given))
        return given

    def _copy(self, narrow: Tensor) -> Tensor:
        if narrow not in self._copies:
            with torch.enable_grad():  # a function may differentiate inside
                self._copies[narrow] = narrow.to(torch.float64)
        wide: Tensor = self._copies[narrow]
        return wide


def _is_narrow(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype != torch.float64


@functools.cache
def _may_draw(func: Callable[..., Any]) -> bool:
    """Whether a function draws from a random generator, by torch's own tags."""
    operator = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
    if operator is None:
        return False
    tag = torch.Tag.nondeterministic_seeded
    return any(tag in getattr(operator, name).tags for name in operator.overloads())


FLOAT64_MODE: ContextVar[Float64Mode | None] = ContextVar("float64", default=None)
"""In which the user's functions are computed now; None outside ``in_float64``."""


def in_float64(value: Callable[[], float]) -> float:
    """Return a value with every function of the user computed in float64.

    Args:
        value: The ``value`` of a term.

    Raises:
        NotInFloat64: A function does what cannot be repeated in float64.

    Example:
        >>> import oneproj
        >>> w = torch.full((3,), 0.1, requires_grad=True)
        >>> total = oneproj.function(lambda: w.sum())
        >>> total.value(), in_float64(total.value)
        (0.30000001192092896, 0.30000000447034836)
    """
    token = FLOAT64_MODE.set(Float64Mode())
    compiled = "torch._dynamo" in sys.modules  # else nothing can be compiled yet
    stance = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
    try:
        with stance, torch.random.fork_rng(devices=[]):
            return value()
    finally:
        FLOAT64_MODE.reset(token)


@contextmanager
def _unchanged_modules() -> Iterator[None]:
    """Restore the attributes of the modules that this thread calls in the block.

    A module may store what it computes, which is float64 here: in an attribute, or in
    a dict that is one, such as that of its buffers.
    """
    saved: dict[nn.Module, list[tuple[dict[str, Any], dict[str, Any]]]] = {}

    def save(module: nn.Module) -> None:
        if module in saved:
            return
        if isinstance(module, torch.jit.ScriptModule):
            message = "a scripted module in it computes as it was compiled"
            raise NotInFloat64(message)
        attributes = vars(module)
        dicts = [attributes, *(v for v in attributes.values() if isinstance(v, dict))]
        saved[module] = [(entries, dict(entries)) for entries in dicts]

    try:
        with before_calls(save):
            yield
    finally:
        for pairs in saved.values():
            for entries, before in pairs:
                entries.clear()
                entries.update(before)


class Float64Check(NamedTuple):
    """Constraints whose functions compute in less than float64, in float64."""

    residuals: dict[str, float]
    """On all data."""
    reasons: dict[str, str]
    """Why others could not be computed in float64."""


def check_in_float64(
    parameters: Iterable[Tensor], constraints: Mapping[str, AbstractTerm]
) -> Float64Check:
    """Evaluate constraints on all data once more, with their functions in float64.

    One pass for each constraint, and none for a set, or where parameters and values
    are float64 already. Nothing that belongs to the user is changed.

    Example:
        >>> from oneproj import function
        >>> w = torch.full((3,), 0.1, requires_grad=True)
        >>> size = function(lambda: w.sum()) <= 0.30000001
        >>> size.value(), check_in_float64([w], {"size": size}).residuals
        (1.92...e-09, {'size': -5.52...e-09})
    """
    exact = all(p.dtype == torch.float64 for p in parameters)
    found = Float64Check({}, {})
    with fresh_casts():
        for name, c in constraints.items():
            if c.always_float64 or (exact and c.precision() in (None, torch.float64)):
                continue
            try:
                found.residuals[name] = in_float64(c.value)
            except Exception as error:  # noqa: BLE001 - whatever a function may raise
                known = isinstance(error, NotInFloat64)
                kind = "" if known else f"{type(error).__name__}: "
                found.reasons[name] = kind + str(error).partition("\n")[0]
    return found


def warn_if_signs_differ(
    residuals: Mapping[str, float], wide_residuals: Mapping[str, float]
) -> None:
    """Warn about constraints that are met in one precision and violated in the other.

    Args:
        residuals: In the model's own arithmetic.
        wide_residuals: Those that were computed in float64 as well.
    """
    for name, wide in wide_residuals.items():
        own = residuals[name]
        if (own <= 0) == (wide <= 0):
            continue
        message = (
            f"Rounding decides about the constraint {name!r}: its residual is "
            f"{own:.3g} in the model's own arithmetic and {wide:.3g} in float64. "
            "Feasible means <= 0 in the model's own, so it counts as "
            f"{'met' if own <= 0 else 'violated'}. To have both agree, tighten its "
            f"bound by more than {abs(wide - own):.1g}, compute in a wider dtype, or "
            "centre and scale the features."
        )
        warn(message)
