"""Schemas of tensors, of generators, and of the states of torch's optimisers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from oneproj.schema import (
    AbstractSchema,
    AsIs,
    EmptyOr,
    Equal,
    Fields,
    Flag,
    Integer,
    Items,
    Maybe,
    Number,
    Plain,
    Row,
    SchemaError,
    Text,
    require,
)

PLAIN = Plain(leaves=(Tensor,))
"""What a file may hold at all: containers, numbers, strings and tensors."""
STEPPED = ("lr", "initial_lr", "prox_weight")
"""Entries of a parameter group that a run of this library changes."""
RATES = ("base_lrs", "_last_lr")
"""Entries of a scheduler that are step sizes, one per group."""
IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
"""Entries of a parameter group that may be others on another device."""
LARGEST = 1e30
"""No step size and no other setting is larger: beyond 3e38 it is no number of float32.
"""
NEVER_NEGATIVE = ("step", "exp_avg_sq", "max_exp_avg_sq")
"""What Adam and its like take roots and powers of."""


@dataclass(frozen=True)
class TensorSchema(AbstractSchema):
    """A dense tensor of a given shape and dtype.

    Args:
        shape: Of the tensor; None stands for any length along that axis.
        dtype: Of its entries; None for any floating-point one.
        least: The smallest entry that is allowed.
        most: The largest.
        finite: Whether NaN and infinity are refused.

    Example:
        >>> TensorSchema((2,), torch.float32).check(torch.ones(2), "w")
        tensor([1., 1.])
        >>> TensorSchema((2,), torch.float32).check(torch.ones(3), "w")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: w should be a float32 tensor of shape (2,), it ...
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype | None
    least: int | None = None
    most: int | None = None
    finite: bool = True

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - whatever a file had
        kind = "floating" if self.dtype is None else _name(self.dtype)
        shape = str(self.shape).replace("None", "any")
        wanted = f"a {kind} tensor of shape {shape}"
        found = value
        fits = type(value) is Tensor and value.layout is torch.strided
        if fits:
            found = _Words(
                f"a {_name(value.dtype)} tensor of shape {tuple(value.shape)}"
            )
            fits = self.dtype in (None, value.dtype)
            fits = fits and (self.dtype is not None or value.is_floating_point())
            fits = fits and len(value.shape) == len(self.shape)
            pairs = zip(value.shape, self.shape, strict=False)
            fits = fits and all(length in (given, None) for given, length in pairs)
        require(fits, found, where, wanted)
        if self.finite and not bool(torch.isfinite(value).all()):
            message = f"{where} has entries that are NaN or infinite"
            raise SchemaError(message)
        low = self.least is not None and bool((value < self.least).any())
        if low or (self.most is not None and bool((value > self.most).any())):
            message = f"{where} has entries outside of [{self.least}, {self.most}]"
            raise SchemaError(message)
        return value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _Words(str):
    """Shows itself without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def vector_like(point: Sequence[Tensor], *, finite: bool = True) -> Row:
    """The schema of a list of tensors, shaped like the given ones.

    Example:
        >>> vector_like([torch.zeros(2)]).check([torch.ones(2)], "point")
        [tensor([1., 1.])]
    """
    return Row(tuple(like_tensor(t, finite=finite) for t in point))


def like_tensor(tensor: Tensor, *, finite: bool = True) -> TensorSchema:
    """The schema of tensors with the shape and the dtype of another.

    Example:
        >>> like_tensor(torch.zeros(2)).shape
        (2,)
    """
    return TensorSchema(tuple(tensor.shape), tensor.dtype, finite=finite)


class GeneratorState(AbstractSchema):
    """The state of a generator of random numbers on the processor.

    Example:
        >>> state = torch.Generator().get_state()
        >>> GeneratorState().check(state, "sampling") is state
        True
    """

    def check(self, value: Any, where: str) -> Tensor:  # noqa: ANN401 - as above
        probe = torch.Generator()
        state: Tensor = like_tensor(probe.get_state()).check(value, where)
        try:
            probe.set_state(state)
        except RuntimeError as error:
            message = f"{where} is no state of a generator of random numbers"
            raise SchemaError(message) from error
        return state


def like(value: object) -> AbstractSchema:  # noqa: PLR0911 - one return per kind
    """The schema of what has the form of a value that is in use now.

    Numbers stay numbers, lists keep their lengths and mappings their names. What is
    None now may become any plain data.

    Example:
        >>> like({"last_epoch": 0, "base_lrs": [0.1]}).check(
        ...     {"last_epoch": 7, "base_lrs": [0.2]}, "scheduler")
        {'last_epoch': 7, 'base_lrs': [0.2]}
    """
    if isinstance(value, bool):
        return Flag()
    if isinstance(value, int | float):
        bounded = Number(-LARGEST, LARGEST, finite=True)
        return AsIs(bounded if math.isfinite(value) else Number())
    if isinstance(value, str):
        return Text()
    if isinstance(value, Tensor):
        return like_tensor(value)
    if isinstance(value, list | tuple):
        return AsIs(Row(tuple(like(item) for item in value)))
    if isinstance(value, Mapping) and all(type(name) is str for name in value):
        return AsIs(Fields({name: like(item) for name, item in value.items()}))
    return PLAIN


def scheduler_state(scheduler: LRScheduler) -> AbstractSchema:
    """The schema of the state of a torch scheduler, by what it holds now.

    Example:
        >>> adam = torch.optim.Adam([torch.zeros(2, requires_grad=True)])
        >>> scheduler = torch.optim.lr_scheduler.LambdaLR(adam, lambda k: 0.5**k)
        >>> schema = scheduler_state(scheduler)
        >>> schema.check(scheduler.state_dict(), "scheduler")["last_epoch"]
        0
    """
    state = scheduler.state_dict()
    schemas = {name: like(value) for name, value in state.items()}
    rate = AsIs(Number(0.0, LARGEST, finite=True))
    for name in RATES:
        if isinstance(now := state.get(name), list):
            schemas[name] = Items(rate, least=len(now), most=len(now))
    if "last_epoch" in state:  # the steps that were made
        schemas["last_epoch"] = Integer(least=0)
    if "lr_lambdas" in state:  # functions have no state, and get none
        functions = (Equal(f) if f is None else like(f) for f in state["lr_lambdas"])
        schemas["lr_lambdas"] = Row(tuple(functions))
    return AsIs(Fields(schemas))


def optimizer_state(optimizer: Optimizer, *, own: bool) -> AbstractSchema:
    """The schema of the state of a torch optimiser.

    What it remembers of each parameter is learned from a copy that makes one step with
    gradients of zero: every optimiser thus tells its own schema.

    Args:
        optimizer: That is to go on from the state.
        own: Whether its step sizes are scheduled by this library, which leaves all
            other settings of a group as they are; a user's scheduler may change more.

    Example:
        >>> w = torch.zeros(2, requires_grad=True)
        >>> adam = torch.optim.Adam([w])
        >>> schema = optimizer_state(adam, own=True)
        >>> state = schema.check(adam.state_dict(), "optimizer")
        >>> state["state"] = {0: {"step": 1}}
        >>> schema.check(state, "optimizer")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: optimizer.state[0] has no exp_avg, exp_avg_sq
    """
    return AsIs(
        Fields(
            {
                "state": PerParameter(_after_a_step(optimizer)),
                "param_groups": groups_like(optimizer, own=own),
            }
        )
    )


def groups_like(optimizer: Optimizer, *, own: bool) -> AbstractSchema:
    """The schema of the parameter groups of an optimiser; see ``optimizer_state``."""
    groups = optimizer.state_dict()["param_groups"]
    return AsIs(Row(tuple(_group(group, own=own) for group in groups)))


def _group(group: Mapping[str, Any], *, own: bool) -> Fields:
    schemas = {
        name: Equal(value) if name == "params" or own else like(value)
        for name, value in group.items()
    }
    rate = Number(least=0.0, most=LARGEST, finite=True)
    stepped = {name: rate for name in STEPPED if name in group and own}
    chosen = {name: Maybe(Flag()) for name in IMPLEMENTATION if name in group}
    return Fields({**schemas, **stepped, **chosen})


def _after_a_step(optimizer: Optimizer) -> dict[int, AbstractSchema]:
    """What an optimiser remembers of each parameter; of some, anything plain."""
    try:
        probe = copy.deepcopy(optimizer)
        for group in probe.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        probe.step()
        found = probe.state_dict()["state"]
    except Exception:  # noqa: BLE001 - one that needs a closure, or cannot be copied
        found = {}
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    return {i: _remembered(found.get(i)) for i in range(count)}


def _remembered(state: Mapping[str, Any] | None) -> AbstractSchema:
    if state is None:
        return PLAIN
    schemas = {name: like(value) for name, value in state.items()}
    for name in NEVER_NEGATIVE:
        if isinstance(value := state.get(name), Tensor):
            schemas[name] = replace(like_tensor(value), least=0)
    return EmptyOr(Fields(schemas))


@dataclass(frozen=True)
class PerParameter(AbstractSchema):
    """A mapping from the places of parameters to what is kept of each.

    Args:
        schemas: By the place.
        complete: Whether every parameter must be there.

    Example:
        >>> PerParameter({0: PLAIN}).check({}, "state")
        {}
    """

    schemas: Mapping[int, AbstractSchema]
    complete: bool = False

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        places = isinstance(value, dict) and all(type(i) is int for i in value)
        require(places, value, where, "a mapping from the places of parameters")
        for i, item in value.items():
            if i not in self.schemas:
                message = f"{where} is of a parameter {i} that there is not"
                raise SchemaError(message)
            self.schemas[i].check(item, f"{where}[{i}]")
        if self.complete and (missing := sorted(self.schemas.keys() - value.keys())):
            message = f"{where} has nothing of the parameters {missing}"
            raise SchemaError(message)
        return value
