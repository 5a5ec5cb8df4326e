"""State that is saved and read back, and checks of what a file holds.

``Resumable`` saves and loads named attributes of an object. ``check_like`` compares
data with an example: what a new run of the same problem would save. That is the one
check of a whole checkpoint; the other functions are its parts. What is None or empty in
a new run has a ``Form``, which says what a run may have put there. Nothing in a file
can name a class or a function.
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer

Data: TypeAlias = Any  # whatever a file had
Limits: TypeAlias = tuple[float, float]
INF = math.inf
FINITE: Limits = (-INF, INF)
LARGEST = 1e30  # no step size or other setting is larger; the largest float32 is 3e38
LARGEST_INT = 2**63  # of a machine's whole numbers; a float of that size stays one
MAX_DEPTH = 50  # containers within containers that a file may hold


@dataclass(frozen=True)
class Known:
    """What forms are checked against.

    Attributes:
        parameters: Of the problem.
        sizes: The number of examples of each constraint; None for one without data.
        size: That of the term at hand, which is the objective first.
    """

    parameters: Sequence[Tensor]
    sizes: Mapping[str, int | None]
    size: int | None


Form: TypeAlias = Callable[[Data, str, Known], None]
"""Raises a SchemaError unless data has this form. Takes the data, where it is found,
and what is known of the problem."""
Later: TypeAlias = Mapping[str, Any] | None
"""By name, the form of what is None or empty in a new run, or such a mapping for what
is in it. Other names stay None or empty. None: nothing is known, and anything plain
may be there."""


@runtime_checkable
class HasState(Protocol):
    """What optimisers, schedulers and the like have."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, by name."""

    def load_state_dict(self, state_dict: Any, /) -> Any:  # noqa: ANN401 - plain data
        """Continue from such a state."""


@runtime_checkable
class HasLater(Protocol):
    """What says which parts of its state are filled later."""

    def later(self) -> dict[str, Any]:
        """Return what may be put there."""


class Resumable:
    """An object whose state is its attributes named in ``STATE``.

    Attributes that have a state of their own, such as optimisers, save and load it. The
    others are plain data: numbers, strings, tensors and containers of them. Nothing is
    copied, in either direction.

    Example:
        >>> class Counter(Resumable):
        ...     STATE = ("_made",)
        ...     def __init__(self): self._made = 0
        >>> counter = Counter()
        >>> counter.load_state_dict({"made": 3}); counter.state_dict()
        {'made': 3}
    """

    STATE: ClassVar[tuple[str, ...]] = ()
    """Names of attributes; in the state they have no underscore in front."""
    LATER: ClassVar[Mapping[str, Form]] = {}
    """Forms of those that are None or empty at first, by name in the state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, by name."""
        parts = {name: vars(self)[name] for name in self.STATE}
        return {
            name.lstrip("_"): part.state_dict() if isinstance(part, HasState) else part
            for name, part in parts.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state."""
        for name in self.STATE:
            saved, part = state[name.lstrip("_")], vars(self)[name]
            if isinstance(part, HasState):
                part.load_state_dict(saved)
            else:
                vars(self)[name] = saved

    def later(self) -> dict[str, Any]:
        """Return what a run may put where the state of a new one is None or empty."""
        parts = {name: vars(self)[name] for name in self.STATE}
        found = {name.lstrip("_"): later(part) for name, part in parts.items()}
        return found | dict(self.LATER)


def later(part: object) -> Later:
    """What a run may put into the state of a part of it; see ``Later``.

    Example:
        >>> later(3), later(torch.optim.lr_scheduler.LRScheduler)
        ({}, None)
    """
    if isinstance(part, Optimizer) and not isinstance(part, HasLater):
        return {"state": memory(part)}
    if isinstance(part, HasLater):
        return part.later()
    return None if isinstance(part, HasState) else {}


class SchemaError(ValueError):
    """Data that does not fit; the message says where and why.

    Example:
        >>> check_range(-5, "update", 0)
        Traceback (most recent call last):
        oneproj.schema.SchemaError: update should be a whole number >= 0, it is -5
    """


def require(fits: bool, value: object, where: str, wanted: str) -> None:  # noqa: FBT001 - a test's outcome
    """Raise unless a value fits.

    Raises:
        SchemaError: It does not; the message shows what was wanted and what there is.

    Example:
        >>> require(1 == 1, 1, "x", "one")
    """
    if not fits:
        found = reprlib.repr(value)
        if type(value) is Tensor:
            found = f"a {value.dtype} tensor of shape {tuple(value.shape)}"
        message = f"{where} should be {wanted}, it is {found}"
        raise SchemaError(message)


def check_plain(value: Data, where: str, depth: int = 0) -> Data:
    """Require numbers, strings, tensors and containers of them; returns the data.

    Example:
        >>> check_plain({"a": [1, None]}, "state")
        {'a': [1, None]}
        >>> check_plain({"a": [print]}, "state")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: state['a'][0] is a builtin_function_or_method
    """
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return value
    if depth > MAX_DEPTH or not isinstance(value, Mapping | list | tuple):
        kind = f"a {type(value).__name__}"
        message = f"{where} is {kind if depth <= MAX_DEPTH else 'nested too deeply'}"
        raise SchemaError(message)
    for name, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        check_plain(name, f"a name in {where}", depth + 1)
        check_plain(item, f"{where}[{name!r}]", depth + 1)
    return value


def check_like(
    value: Data,
    like: Data,
    where: str,
    later: Later = None,
    known: Known | None = None,
) -> None:
    """Compare data with an example of it.

    Tensors need the shape and the dtype of the example, lists its length, mappings its
    names. Numbers and tensors must be finite where the example is. What is None or
    empty in a mapping of the example may stay so, or have the form that ``later`` has
    for it; without ``later`` it may be anything plain.

    Raises:
        SchemaError: The data differs in form; the message says where.

    Example:
        >>> check_like({"total": 7.5, "kept": [1]}, {"total": 0.0, "kept": []}, "state")
        >>> check_like({"total": "7"}, {"total": 0.0}, "state")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: state.total should be a number ..., it is '7'
    """
    if isinstance(like, Tensor):
        finite = like.is_meta or bool(torch.isfinite(like).all())
        within = FINITE if finite else None
        check_tensor(value, where, like.shape, like.dtype, within)
    elif isinstance(like, bool | str):
        require(type(value) is type(like), value, where, f"a {type(like).__name__}")
    elif isinstance(like, int | float):
        limit = LARGEST if math.isfinite(like) else INF
        check_range(value, where, -limit, limit)
    elif isinstance(like, Mapping) and all(isinstance(name, str) for name in like):
        _check_parts(value, like, where, later, known)
    elif isinstance(like, list | tuple):
        check_list(value, where, len(like), len(like))
        for i, item in enumerate(like):
            check_like(value[i], item, f"{where}[{i}]")
    elif like is None:
        require(value is None, value, where, "None")


def _check_parts(
    value: Data, like: Data, where: str, later: Later, known: Known | None
) -> None:
    """Compare a mapping from names with an example of it."""
    check_names(value, where, like)
    for name, item in like.items():
        part, at = value[name], f"{where}.{name}"
        form = None if later is None else later.get(name, {})
        same = _is_empty(item) and _is_empty(part) and type(part) is type(item)
        if callable(form) and known is not None:
            if not same:
                form(part, at, known)
        elif not _is_empty(item):
            check_like(part, item, at, form, known)
        elif form is not None:
            require(same, part, at, repr(item))


def _is_empty(value: Data) -> bool:
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def number(value: Data, where: str, known: Known) -> None:
    """Require a number, also one that is not finite: a form."""
    del known
    check_range(value, where, -INF, INF)


def finite(value: Data, where: str, known: Known) -> None:
    """Require a finite number: a form."""
    del known
    check_range(value, where, -LARGEST)


def amount(value: Data, where: str, known: Known) -> None:
    """Require a finite number that is not negative: a form."""
    del known
    check_range(value, where, 0.0)


def vector(value: Data, where: str, known: Known) -> None:
    """Require tensors like the parameters: a form."""
    check_like(value, list(known.parameters), where)


def per_parameter(value: Data, where: str, known: Known) -> None:
    """Require, by number of a parameter, named tensors like it: a form."""
    numbers = range(len(known.parameters))
    fits = isinstance(value, dict) and all(key in numbers for key in value)
    require(fits, value, where, "a mapping from the numbers of parameters")
    for key, parts in value.items():
        check_names(parts, f"{where}[{key}]", parts)
        for name, part in parts.items():
            check_like(part, known.parameters[key], f"{where}[{key}].{name}")


def indices(value: Data, where: str, known: Known) -> None:
    """Require indices of examples of the term at hand: a form."""
    check_tensor(value, where, (None,), torch.int64, (0, (known.size or 0) - 1))


def position(value: Data, where: str, known: Known) -> None:
    """Require a place among the examples of the term at hand, or behind: a form."""
    check_range(value, where, 0, known.size or 0)


def order(value: Data, where: str, known: Known) -> None:
    """Require all indices of the term at hand, in any order: a form."""
    check_tensor(value, where, (known.size or 0,), torch.int64)
    whole = torch.equal(value.sort().values, torch.arange(len(value), device="cpu"))
    require(whole, value, where, "every index once")


def examples(value: Data, where: str, known: Known) -> None:
    """Require a number per example, of all or of some: a form."""
    check_tensor(value, where, (None,))
    require(len(value) <= (known.size or 0), value, where, "one number per example")


def many(form: Form) -> Form:
    """A list, each item of which has the form."""

    def check(value: Data, where: str, known: Known) -> None:
        check_list(value, where, 0, INF)
        for i, item in enumerate(value):
            form(item, f"{where}[{i}]", known)

    return check


def optional(form: Form) -> Form:
    """None, empty or of the form."""

    def check(value: Data, where: str, known: Known) -> None:
        if not _is_empty(value):
            form(value, where, known)

    return check


def by_constraint(form: Form, *, some: bool = False) -> Form:
    """A mapping from all names of constraints, or from some, to what has the form."""

    def check(value: Data, where: str, known: Known) -> None:
        check_names(value, where, known.sizes, () if some else None)
        for name, item in value.items():
            form(item, f"{where}.{name}", replace(known, size=known.sizes[name]))

    return check


def by_name(form: Form) -> Form:
    """A mapping from any names to what has the form."""

    def check(value: Data, where: str, known: Known) -> None:
        check_names(value, where, value)
        for name, item in value.items():
            form(item, f"{where}.{name}", known)

    return check


def record(**forms: Form | Data) -> Form:
    """A mapping with these names, to what has the form or is like the example."""

    def check(value: Data, where: str, known: Known) -> None:
        check_names(value, where, forms)
        for name, form in forms.items():
            at = f"{where}.{name}"
            if callable(form):
                form(value[name], at, known)
            else:
                check_like(value[name], form, at)

    return check


def memory(optimizer: Optimizer) -> Form:
    """What an optimiser may remember of each parameter, by its number.

    A copy that makes one step, with gradients of zero, shows its form. Of an optimiser
    that cannot (it needs a closure, say), any memory will do.
    """

    def check(value: Data, where: str, known: Known) -> None:
        del known
        copied = copy.deepcopy(optimizer)
        for p in (p for group in copied.param_groups for p in group["params"]):
            p.grad = torch.zeros_like(p)
        try:
            copied.step()
        except Exception:  # noqa: BLE001 - it is not ours, and may raise anything
            return
        like = copied.state_dict()["state"]
        fits = isinstance(value, dict) and value.keys() <= like.keys()
        require(fits, value, where, "a mapping from the numbers of parameters")
        for number, remembered in value.items():
            check_like(remembered, like[number], f"{where}[{number}]", {})

    return check


def check_range(value: Data, where: str, least: float, most: float = INF) -> Data:
    """Require a number within limits, a whole one if the lower limit is an ``int``.

    It has to be finite, unless both limits are infinite. Returns it.

    Example:
        >>> check_range(3, "update", 0, 9)
        3
    """
    whole = type(least) is int
    limits = [f">= {least}"] * (least > -INF) + [f"<= {most}"] * (most < INF)
    fits = type(value) is int and abs(value) < LARGEST_INT
    fits = fits or (type(value) is float and not whole)
    fits = fits and (not limits or (least <= value <= most and abs(value) < INF))
    kind = "a whole number" if whole else "a number"
    require(fits, value, where, f"{kind} {' and '.join(limits)}".rstrip())
    return value


def check_tensor(
    value: Data,
    where: str,
    shape: Sequence[int | None],
    dtype: torch.dtype | None = None,
    within: Limits | None = FINITE,
) -> None:
    """Require a dense tensor, its entries finite and within limits.

    None stands for any length, any floating dtype, or any entries.

    Example:
        >>> check_tensor(torch.ones(3), "w", (2,), torch.float32)
        Traceback (most recent call last):
        oneproj.schema.SchemaError: w should be a torch.float32 tensor of shape (2,)...
    """
    fits = type(value) is Tensor and value.layout is torch.strided
    fits = fits and (value.dtype == dtype if dtype else value.is_floating_point())
    fits = fits and len(value.shape) == len(shape)
    fits = fits and all(b in (a, None) for a, b in zip(value.shape, shape, strict=True))
    require(fits, value, where, f"a {dtype or 'floating'} tensor of shape {(*shape,)}")
    if within is not None:
        inside = torch.isfinite(value) & (value >= within[0]) & (value <= within[1])
        fits = bool(inside.all())
        require(fits, "not", where, f"finite and within {within} in every entry")


def check_list(value: Data, where: str, least: int, most: float) -> None:
    """Require a list or tuple of some length.

    Example:
        >>> check_list([1, 2], "pair", 2, 2)
    """
    fits = type(value) in (list, tuple) and least <= len(value) <= most
    wanted = f"a list of {least}" if most == least else f"a list of {least} to {most}"
    require(fits, value, where, wanted)


def check_names(value: Data, where: str, known: Data, needed: Data = None) -> None:
    """Require a mapping with known names, all of them unless fewer are needed.

    Example:
        >>> check_names({}, "sampler", ["drawn"])
        Traceback (most recent call last):
        oneproj.schema.SchemaError: sampler has no drawn
    """
    fits = isinstance(value, dict) and all(type(name) is str for name in value)
    require(fits, value, where, "a mapping from names")
    missing = sorted(set(known if needed is None else needed) - value.keys())
    for word, names in ("no", missing), ("an unknown", sorted({*value} - {*known})):
        if names:
            message = f"{where} has {word} {', '.join(names)}"
            raise SchemaError(message)
