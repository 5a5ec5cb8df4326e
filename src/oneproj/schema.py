"""Checks of data that is read back from a file, before anything is built from it.

``check_like`` compares data with an example: what a new run of the same problem would
save. ``check_range`` and ``check_tensor`` state ranges, ``check_optimizer`` and
``check_scheduler`` what torch's optimisers and schedulers save. Nothing in a file can
name a class or a function.
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Data: TypeAlias = Any  # whatever a file had
Limits: TypeAlias = tuple[float, float]
INF = math.inf
FINITE: Limits = (-INF, INF)
LARGEST = 1e30  # no step size or other setting is larger; the largest float32 is 3e38
MAX_DEPTH = 50  # containers within containers that a file may hold
# Settings of a parameter group that may differ on another device.
IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")


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


def check_like(value: Data, like: Data, where: str) -> None:
    """Compare data with an example of it.

    Tensors need the shape and the dtype of the example, lists its length, mappings its
    names. Numbers and tensors must be finite where the example is. What is None or
    empty in a mapping of the example may be anything plain, and so may mappings from
    numbers (an optimiser's memory): whoever loads those checks them.

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
        check_names(value, where, like)
        for name, item in like.items():
            empty = isinstance(item, list | tuple | Mapping) and not item
            if item is not None and not empty:
                check_like(value[name], item, f"{where}.{name}")
    elif isinstance(like, list | tuple):
        check_list(value, where, len(like), len(like))
        for i, item in enumerate(like):
            check_like(value[i], item, f"{where}[{i}]")
    elif like is None:
        require(value is None, value, where, "None")


def check_range(value: Data, where: str, least: float, most: float = INF) -> Data:
    """Require a number within limits, a whole one if the lower limit is an ``int``.

    It has to be finite, unless both limits are infinite. Returns it.

    Example:
        >>> check_range(3, "update", 0, 9)
        3
    """
    whole = type(least) is int
    limits = [f">= {least}"] * (least > -INF) + [f"<= {most}"] * (most < INF)
    fits = type(value) is int or (type(value) is float and not whole)
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


def check_optimizer(saved: Data, optimizer: Optimizer, *, own: bool) -> None:
    """Require a state that an optimiser can go on from.

    What it keeps of each parameter is compared with a copy of the optimiser that made
    one step with gradients of zero.

    Args:
        saved: The state.
        optimizer: That is to load it.
        own: Whether this library sets the step sizes and nothing sets anything else; a
            user's scheduler may change every setting of a group.

    Example:
        >>> adam = torch.optim.Adam([torch.zeros(2, requires_grad=True)])
        >>> state = adam.state_dict() | {"state": {0: {"step": 1}}}
        >>> check_optimizer(state, adam, own=True)
        Traceback (most recent call last):
        oneproj.schema.SchemaError: optimizer.state[0] has no exp_avg, exp_avg_sq
    """
    groups, where = optimizer.state_dict()["param_groups"], "optimizer.param_groups"
    check_like(saved, {"state": {}, "param_groups": groups}, "optimizer")
    for i, group in enumerate(groups):
        for name, now in group.items():
            found, at = saved["param_groups"][i][name], f"{where}[{i}].{name}"
            if name in IMPLEMENTATION:
                require(found in (None, True, False), found, at, "true, false or None")
            elif own and name in ("lr", "initial_lr", "prox_weight"):
                check_range(found, at, 0.0, LARGEST)
            elif own or name == "params":
                require(type(found) is type(now) and found == now, found, at, repr(now))
    count = sum(len(group["params"]) for group in groups)
    fits = isinstance(saved["state"], dict)
    fits = fits and all(type(i) is int and 0 <= i < count for i in saved["state"])
    require(fits, saved["state"], "optimizer.state", f"of parameters 0 to {count - 1}")
    kept = _memory_after_a_step(optimizer) if saved["state"] else {}
    for i, memory in saved["state"].items():
        if i in kept and memory != {}:
            check_like(memory, kept[i], f"optimizer.state[{i}]")
            for name in {"step", "exp_avg_sq", "max_exp_avg_sq"} & kept[i].keys():
                known = torch.as_tensor(memory[name], device="cpu")
                fits = bool((known >= 0).all())
                require(fits, memory[name], f"optimizer.state[{i}].{name}", ">= 0")


def _memory_after_a_step(optimizer: Optimizer) -> dict[int, dict[str, Data]]:
    """What an optimiser keeps of each parameter; nothing if it cannot be copied."""
    try:
        probe = copy.deepcopy(optimizer)
        for group in probe.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        probe.step()
        return dict(probe.state_dict()["state"])
    except Exception:  # noqa: BLE001 - one that needs a closure, for example
        return {}


def check_scheduler(saved: Data, scheduler: LRScheduler) -> None:
    """Require a state that a scheduler can go on from, compared with what it has now.

    Example:
        >>> adam = torch.optim.Adam([torch.zeros(2, requires_grad=True)])
        >>> scheduler = torch.optim.lr_scheduler.LambdaLR(adam, lambda k: 0.5**k)
        >>> check_scheduler(scheduler.state_dict(), scheduler)
    """
    check_like(saved, scheduler.state_dict(), "scheduler")
    for name in {"base_lrs", "_last_lr"} & saved.keys():
        for rate in saved[name]:
            check_range(rate, f"scheduler.{name}", 0.0, LARGEST)
    if "last_epoch" in saved:
        check_range(saved["last_epoch"], "scheduler.last_epoch", 0)
