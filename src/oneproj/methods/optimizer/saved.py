"""Saved states of ``OneProjection``: what they must hold before one is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from oneproj.errors import InvalidProblemError
from oneproj.schema import AbstractSchema, Equal, Fields, Flag, Integer, Number, require
from oneproj.tensor_schema import (
    PLAIN,
    PerParameter,
    groups_like,
    like_tensor,
    optimizer_state,
)

PARTS = ("state", "param_groups", "run", "settings", "base")
"""Of a saved state; other optimisers have the first two."""


def kind(base: Optimizer) -> str:
    """The optimiser of torch.optim that a base is, or its own name if it is none.

    Example:
        >>> class Quick(torch.optim.Adam): ...
        >>> w = torch.zeros(1, requires_grad=True)
        >>> kind(Quick([w])), kind(torch.optim.AdamW([w]))
        ('Adam', 'AdamW')
    """
    for ancestor in type(base).__mro__:
        if ancestor.__module__.startswith("torch.optim.") and ancestor != Optimizer:
            return ancestor.__name__
    return type(base).__name__


@dataclass(frozen=True)
class NestedSchema(AbstractSchema):
    """What the state of a ``OneProjection`` looks like, between two of its updates.

    Args:
        optimizer: That is to go on from the state.
        base: The optimiser inside it.
        at: Where the optimiser stands now.
        settings: The optimiser's own, which must be those that it was saved with.
        own: Whether this library schedules the step sizes.
    """

    optimizer: Optimizer
    base: Optimizer
    at: Mapping[str, Any]
    settings: Mapping[str, Any]
    own: bool

    def check(self, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever a file had
        drawn, K = self.at["J"], self.settings["inner_steps"]
        run = Fields(
            {
                "t": Integer(least=0),
                "s": Integer(least=1, most=K),
                "J": Equal(drawn),
                "shown": Equal(None),
                "touched": Flag(),
            }
        )
        parts = dict.fromkeys(PARTS, PLAIN) | {"run": run}
        t = Fields(parts).check(value, where)["run"]["t"]
        names = ["x", "average"]
        names += ["selected"] if drawn is not None and t >= drawn else []
        parameters = [
            p for group in self.optimizer.param_groups for p in group["params"]
        ]
        schemas: dict[str, AbstractSchema] = {
            "state": PerParameter(
                {
                    i: Fields(dict.fromkeys(names, like_tensor(p)))
                    for i, p in enumerate(parameters)
                },
                complete=True,
            ),
            "param_groups": groups_like(self.optimizer, own=self.own),
            "run": run,
            "settings": Fields({name: _Same(s) for name, s in self.settings.items()}),
            "base": optimizer_state(self.base, own=self.own),
        }
        checked: dict[str, Any] = Fields(schemas).check(value, where)
        if self.settings["strong_convexity"] is None:
            for i, group in enumerate(checked["param_groups"]):
                rate = max(group["lr"], group.get("initial_lr", 0.0))
                pull = Number(most=1.0)  # more would overshoot the centre
                name = f"lr times prox_weight in {where}.param_groups[{i}]"
                pull.check(float(rate * group["prox_weight"]), name)
        return checked


@dataclass(frozen=True)
class _Same(AbstractSchema):
    """A setting that is the same as now."""

    setting: Any

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        require(_equal(value, self.setting), value, where, _brief(self.setting))
        return value


def check_saved(
    saved: object,
    settings: Mapping[str, Any],
    run: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse a state that an optimiser cannot go on from, before any of it is used.

    Args:
        saved: What is to be loaded.
        settings: The optimiser's own, which must be those that it was saved with.
        run: Where the optimiser stands, for the names in it.
        groups: Of its parameters, which must be shaped like those of the state.

    Raises:
        InvalidProblemError: It is not of a OneProjection with these settings and
            shapes.

    Example:
        >>> check_saved({"state": {}, "param_groups": []}, {}, {}, [])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: The state lacks 'run', 'settings', 'base'...
    """
    if not isinstance(saved, Mapping):
        message = (
            "A state to resume from is what state_dict() of a OneProjection returned, "
            f"but got a {type(saved).__name__}."
        )
        raise InvalidProblemError(message)
    missing = [part for part in PARTS if part not in saved]
    if missing:
        message = (
            f"The state lacks {', '.join(map(repr, missing))}: it is not what "
            "state_dict() of a OneProjection returned, or not all of it. What keeps "
            "only 'state' and 'param_groups', as torch.distributed.checkpoint."
            "state_dict does, loses the rest: save optimizer.state_dict() itself."
        )
        raise InvalidProblemError(message)
    _check_settings(saved["settings"], settings)
    if not isinstance(saved["run"], Mapping) or set(saved["run"]) != set(run):
        message = (
            f"The state says {saved['run']!r} of its run, but {list(run)} are needed. "
            "Was it saved by another version?"
        )
        raise InvalidProblemError(message)
    _check_shapes(saved, groups)


def _check_settings(saved: object, own: Mapping[str, Any]) -> None:
    was = saved if isinstance(saved, Mapping) else {}
    changed = [name for name in own if not _equal(was.get(name), own[name])]
    if changed:
        before = ", ".join(f"{name}={_brief(was.get(name))}" for name in changed)
        now = ", ".join(f"{name}={_brief(own[name])}" for name in changed)
        message = (
            f"The state was saved with {before}, this optimiser has {now}. A run "
            "resumes only with its own settings."
        )
        raise InvalidProblemError(message)


def _equal(a: object, b: object) -> bool:
    if isinstance(a, list) and isinstance(b, list):  # the ball's center
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a.to(b), b)
    return type(a) is type(b) and a == b


def _brief(setting: object) -> str:
    return "another one" if isinstance(setting, list) else repr(setting)


def _check_shapes(
    saved: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]
) -> None:
    own = [[tuple(p.shape) for p in group["params"]] for group in groups]
    try:
        t, J = saved["run"]["t"], saved["run"]["J"]
        vectors = (
            ["x", "average"] if J is None or t < J else ["x", "average", "selected"]
        )
        inner, _ = saved["base"]["param_groups"], saved["base"]["state"]  # both there
        base = [len(group["params"]) for group in inner]
        found = [
            [_shape(saved["state"][i], vectors) for i in group["params"]]
            for group in saved["param_groups"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        message = (
            f"The state is damaged: it lacks {error}. Every parameter has its centre "
            "'x' and its 'average' there, and every group its 'params'."
        )
        raise InvalidProblemError(message) from error
    if found != own or base != [len(shapes) for shapes in own]:
        message = (
            f"The state is of parameters of shapes {found}, group by group, and those "
            f"of this optimiser are {own}. Build the model and its groups as they were "
            "when it was saved, the same parameters frozen."
        )
        raise InvalidProblemError(message)


def _shape(state: Mapping[str, Tensor], vectors: Sequence[str]) -> tuple[int, ...]:
    shapes = [tuple(state[name].shape) for name in vectors]
    if len(set(shapes)) > 1:
        part = f"one shape of {', '.join(map(repr, vectors))}"
        raise KeyError(part)
    return shapes[0]
