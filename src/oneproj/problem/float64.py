"""The user's functions once more in float64, whatever precision they compute in.

A torch function mode replaces every floating-point tensor that a function reads by its
float64 copy, and every narrower dtype that it names by float64. Closures, modules,
captured tensors and casts inside the function are covered, and the user's model stays
as it is: what a function writes in place goes to the copies.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from oneproj.errors import OneprojError

CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}
"""Methods that name a narrower dtype by their own name."""


class NotInFloat64(OneprojError):  # noqa: N818 - a reason, which no user meets
    """A function cannot be computed in float64; the message says why."""


class Float64Mode(TorchFunctionMode):
    """Computes what torch functions compute in float64.

    A tensor has one float64 copy for as long as the mode lasts, so that a write in
    place is seen by the reads that follow, and gradients are taken of what was used.
    Integers, complex numbers and metadata stay.

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
        self.tensors_seen = 0
        self._copies = WeakTensorKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Call the function with wide arguments; what it returns is wide too."""
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

    def _wide(self, given: Any) -> Any:  # noqa: ANN401 - any argument or result
        if isinstance(given, Tensor):
            self.tensors_seen += 1
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


_active: ContextVar[Float64Mode | None] = ContextVar("float64 mode", default=None)


def is_computing_in_float64() -> bool:
    """Whether functions of the user are computed in float64 now.

    Example:
        >>> is_computing_in_float64(), in_float64(is_computing_in_float64)
        (False, True)
    """
    return _active.get() is not None


def in_float64(value: Callable[[], float]) -> float:
    """The value with every function of the user computed in float64.

    Args:
        value: That of a term; it reads data as it is, and calls functions by
            ``call_as_asked``.

    Raises:
        NotInFloat64: A function does what cannot be repeated in float64.

    Example:
        >>> import oneproj
        >>> w = torch.full((3,), 0.1, requires_grad=True)
        >>> total = oneproj.function(lambda: w.sum())
        >>> total.value(), in_float64(total.value)
        (0.30000001192092896, 0.30000000447034836)
    """
    token = _active.set(Float64Mode())
    compiled = "torch._dynamo" in sys.modules  # something may be
    stance = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
    try:
        with stance, torch.random.fork_rng(devices=[]):
            return value()
    finally:
        _active.reset(token)


def call_as_asked(fn: Callable[..., object], *batch: object) -> object:
    """Call a function of the user: in float64 inside ``in_float64``, plainly elsewhere.

    Example:
        >>> call_as_asked(torch.add, torch.ones(1), torch.ones(1)).dtype
        torch.float32
    """
    mode = _active.get()
    if mode is None:
        return fn(*batch)
    seen = mode.tensors_seen
    with _unchanged_modules(), mode:
        found = fn(*batch)
    if mode.tensors_seen == seen:
        message = "none of its operations can be seen, as those of a scripted function"
        raise NotInFloat64(message)
    return found


@contextmanager
def _unchanged_modules() -> Iterator[None]:
    """Give modules that this thread calls the attributes and buffers back they had.

    A module may keep what it computes, which is float64 here.
    """
    kept: dict[nn.Module, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    own = threading.get_ident()

    def keep(module: nn.Module, given: object) -> None:
        del given
        if threading.get_ident() != own or module in kept:
            return
        if isinstance(module, torch.jit.ScriptModule):
            message = "a scripted module in it computes as it was compiled"
            raise NotInFloat64(message)
        held = vars(module), module._buffers  # noqa: SLF001 - no other name
        kept[module] = [(attributes, dict(attributes)) for attributes in held]

    handle = register_module_forward_pre_hook(keep)
    try:
        with warnings.catch_warnings():
            # A compiled module is then seen twice, which does not matter here.
            warnings.filterwarnings("ignore", ".*there are global hooks on modules")
            yield
    finally:
        handle.remove()
        for pairs in kept.values():
            for attributes, before in pairs:
                attributes.clear()
                attributes.update(before)
