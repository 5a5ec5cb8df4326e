"""The parts of ``OneProjection`` that are not in the paper.

What a step refuses, how a failed step is undone, which iterate the parameters hold, and
how the optimiser is saved, loaded and copied with the base optimiser inside it.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.methods.checks import Watch, check_alike, check_step, forget_nonfinite_
from oneproj.vectors.arithmetic import assign, is_finite, norm

PARTS = ("state", "param_groups", "run", "settings", "base")
"""Of a saved state; other optimisers have the first two."""
VECTORS = ("x", "average")
"""Of each parameter in a saved state; random selection adds "selected"."""


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


def check_saved(saved: object, own: Mapping[str, Any]) -> None:
    """Refuse a state that an optimiser cannot go on from, before any of it is used.

    Args:
        saved: What is to be loaded.
        own: The state of the optimiser that is to load it: settings and shapes must be
            the same.

    Raises:
        InvalidProblemError: It is not of a OneProjection with these settings and
            shapes.

    Example:
        >>> check_saved({"state": {}, "param_groups": []}, {})
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
    _check_settings(saved["settings"], own["settings"])
    try:
        found = _layout(saved)
    except (AttributeError, KeyError, TypeError) as error:
        message = (
            f"The state is damaged: reading it raised {error!r}. Every parameter has "
            "its centre 'x' and its 'average' there, and every group its 'params'."
        )
        raise InvalidProblemError(message) from error
    if found != (fits := _layout(own)):
        message = (
            f"The state does not fit this optimiser: it has {found}, and needed is "
            f"{fits}. Build the model and its groups as they were when it was saved, "
            "the same parameters frozen."
        )
        raise InvalidProblemError(message)


def _layout(state: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of the vectors in a state, group by group, and other names in it."""
    kept, base = state["state"], state["base"]
    return {
        "shapes": [
            [tuple(kept[i][name].shape) for i in group["params"] for name in VECTORS]
            for group in state["param_groups"]
        ],
        "base": sorted(base),
        "parameters of the base": [len(g["params"]) for g in base["param_groups"]],
        "run": sorted(state["run"]),
    }


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


@dataclass
class Position:
    """Where Algorithm 1 stands; the vectors are in ``Optimizer.state``."""

    t: int  # complete outer iterations
    s: int  # the inner update that comes next, 1..K
    J: int | None  # the outer iterate to return; None for the last
    shown: str | None = None  # what eval() swapped with the inner iterate
    touched: bool = False  # whether a step ever left the ball


class AbstractNested(Optimizer):
    """A run of Algorithm 1 around a base optimiser that shares its groups."""

    _base: Optimizer  # not there yet while torch's constructor runs
    _at: Position
    _watch: Watch
    _z: list[Tensor]  # the parameters
    _m: float | None
    _beta: float
    _K: int
    _q: float
    _radius: float
    _center: list[Tensor] | None

    @abstractmethod
    def _inner_update(self) -> None:
        """Lines 10-12 of Algorithm 1; after the K-th, lines 14, 3 and 8."""

    @torch.no_grad()
    def step(  # type: ignore[override]  # one signature says what torch's overloads do
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Make one inner update; the ``inner_steps``-th closes the outer iteration.

        Raises:
            NonFiniteError: The gradient, or the iterate after the step, is NaN or
                infinite. The parameters hold ``x_t`` again, and the next step is the
                first from there: leave out the batch, and go on.
        """
        check_step(shown=self._at.shown)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._at.s in (1, self._K):
            self._watch.check()
        try:
            self._inner_update()
        except RuntimeError as error:
            check_alike(self._z, self._average, error)
            raise
        return loss

    def _require_finite(self, outside: float) -> None:
        """Take an outer iteration back that a step has spoilt, and raise.

        ``outside`` is how far the step left the ball, which is finite if the point is.
        """
        # Inside a ball ``outside`` tells; without one the length of the iterate does.
        length = norm(self._z) if math.isinf(self._radius) else outside
        if math.isfinite(length) or (outside == 0 and is_finite(self._z)):
            return
        spoilt = not is_finite(
            [p.grad.to_dense() for p in self._z if p.grad is not None]
        )
        at = self._at
        assign(self._z, self._x)  # line 8
        assign(self._average, self._x)
        forget_nonfinite_(self.base)
        step, at.s = at.t * self._K + at.s, 1
        raise NonFiniteError("the gradient" if spoilt else "the iterate", step=step)

    @property
    def base(self) -> Optimizer:
        """The optimiser that makes the step of lines 11-12."""
        return self._base

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse groups after the start: x_0 and the ball are fixed by then."""
        if "_base" in vars(self):
            message = (
                "A parameter group cannot be added after the start: the centre x_0 "
                "and the ball are those of the first groups. Build a new optimiser."
            )
            raise InvalidProblemError(message)
        super().add_param_group(param_group)

    @property
    def inner_steps(self) -> int:
        """K, the inner updates of an outer iteration."""
        return self._K

    @property
    def ball(self) -> tuple[float, list[Tensor] | None]:
        """The radius and the center of B; None for the origin."""
        return self._radius, self._center

    @property
    def at_center(self) -> bool:
        """Whether the next update is the first of an outer iteration: z_1 = x_t."""
        return self._at.s == 1

    @property
    def selected_index(self) -> int:
        """The outer iterate that ``eval()`` shows now: J once it is reached, else t."""
        t, J = self._at.t, self._at.J
        return t if J is None else min(t, J)

    @property
    def shows_outer(self) -> bool:
        """Whether the parameters hold an outer iterate: after ``eval()``."""
        return self._at.shown is not None

    def eval(self) -> None:
        """Make the parameters hold the selected outer iterate.

        Inner updates of an unfinished outer iteration are not part of it. Before J it
        is the last complete outer iterate; ``selected_index`` says which. A warning
        says so, once, where that leaves nothing of the updates. Running statistics of
        batch norm are still those of the inner iterates:
        ``torch.optim.swa_utils.update_bn`` makes them this one's.
        """
        if self._at.shown is None:
            t, s, J = self._at.t, self._at.s, self._at.J
            self._watch.warn_of_start(t, s - 1, self._K, J)
            self._at.shown = "x" if J is None or t < J else "selected"
            self._swap(self._at.shown)

    def train(self) -> None:
        """Make the parameters hold the inner iterate z_s again.

        What was done to the parameters since ``eval()``, a projection for example,
        stays with the iterate that was shown: project a copy to go on from here.
        """
        if self._at.shown is not None:
            self._swap(self._at.shown)
            self._at.shown = None

    def release(self) -> None:
        """Free the vectors of the state, the base's as well: no step follows."""
        self.state.clear()
        self.base.state.clear()
        for vectors in (self._average, self._x, *self._x_of):
            vectors.clear()

    @torch.no_grad()
    def _swap(self, key: str) -> None:
        # In place and one tensor at a time, so that no third copy of the model exists.
        for p in self._z:
            kept = self.state[p][key]
            held = p.clone()
            p.copy_(kept)
            kept.copy_(held)

    def _bind(self) -> None:
        """Take the tensors of a state that was made or loaded, once for all steps."""
        self._average = [self.state[p]["average"] for p in self._z]
        self._x = [self.state[p]["x"] for p in self._z]
        self._x_of = [
            [self.state[p]["x"] for p in group["params"]] for group in self.param_groups
        ]

    def _settings(self) -> dict[str, Any]:
        """What a saved state must agree with."""
        return {
            "prox_weight": self._beta,
            "strong_convexity": self._m,
            "inner_steps": self._K,
            "late_weight": self._q,
            "radius": self._radius,
            "center": self._center,
            "base": kind(self.base),
            "select": "last" if self._at.J is None else "random",
        }

    def _state(self) -> dict[str, Any]:
        extra = {
            "run": asdict(self._at),
            "settings": self._settings(),
            "base": self.base.state_dict(),
        }
        return super().state_dict() | extra

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume bit for bit; a copy, never an alias."""
        return copy.deepcopy(self._state())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from ``state_dict``; the parameters are the caller's to restore.

        Raises:
            InvalidProblemError: It is not of a OneProjection with the same settings
                and shapes of parameters; then nothing is loaded.
        """
        check_saved(state_dict, self._state())
        state = copy.deepcopy(state_dict)
        super().load_state_dict(state)
        for group in self.param_groups:  # states of earlier versions do not have it
            group.setdefault("prox_weight", self._beta)
        self._at = replace(self._at, **state["run"])
        self.base.load_state_dict(state["base"])
        self.base.param_groups = self.param_groups
        self._bind()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but a scheduler's ``step``, which would step this very object."""
        return {name: part for name, part in self.__dict__.items() if name != "step"}
