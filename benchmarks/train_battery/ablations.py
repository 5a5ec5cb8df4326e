"""The mechanisms of training that can be switched off, one at a time.

Every dotted name of the library that the battery patches is in this file, in ``TABLE``.
A constant is switched off by the value with which its mechanism does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import Tensor, nn

from oneproj import Problem
from oneproj.vectors.arithmetic import dimension

PRACTICE = "oneproj.methods"
METHODS = "oneproj.methods"
SMALL = 200
"""Parameters up to which ``method="auto"`` takes SLSQP: its mechanisms are tried there.
"""


def _always(problem: Problem) -> bool:
    del problem
    return True


def _has_ball(problem: Problem) -> bool:
    return math.isfinite(problem.radius)


def _is_large(problem: Problem) -> bool:
    return dimension(problem.parameters) > 1000  # noqa: PLR2004 - FEW_PARAMETERS


def _is_small(problem: Problem) -> bool:
    return dimension(problem.parameters) <= SMALL


def _has_norm(problem: Problem) -> bool:
    modules = () if problem.model is None else problem.model.modules()
    norms = (nn.BatchNorm1d, nn.BatchNorm2d)
    return any(isinstance(module, norms) and module.training for module in modules)


@dataclass(frozen=True)
class Ablation:
    """A mechanism that is switched off."""

    name: str
    what: str
    """What the mechanism does, and what is in its place."""
    patches: Mapping[str, Any] = field(default_factory=dict)
    """Dotted name of an attribute to what it is meanwhile."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``solve``, where an option switches it off."""
    matters: Callable[[Problem], bool] = _always
    """Whether it can change a run of that problem at all."""
    seed_offset: int = 0
    """Added to the seed of ``solve``, not to that of the problem."""
    against: str = ""
    """The runs to compare with: those of this ablation, as a rule of none."""


NOTHING = Ablation("", "all mechanisms are on")
CHANCE = Ablation("chance", "nothing is off, other minibatches", seed_offset=1000)
"""What differs from its runs is noise: the other rows are measured against it."""


@contextmanager
def switched_off(ablation: Ablation) -> Iterator[None]:
    """Patch the library while a block runs.

    Example:
        >>> from oneproj.methods import strength
        >>> with switched_off(ABLATIONS["strength_kept"]):
        ...     strength.KEPT
        0.0
    """
    with ExitStack() as stack:
        for name, value in ablation.patches.items():
            stack.enter_context(patch(name, value))
        yield


def _alone(P: list[list[float]], w: list[float]) -> list[float]:
    """Each multiplier as if it was the only one."""
    return [max(0.0, -w[j] / P[j][j]) if P[j][j] > 0 else 0.0 for j in range(len(w))]


def _general(P: list[list[float]], w: list[float]) -> list[float]:
    """The multipliers from the general solver, however few they are."""
    solver = import_module("oneproj.vectors.qp").solve_nonnegative_qp
    found: list[float] = solver(
        np.array(P).reshape(len(w), len(w)), np.array(w)
    ).z.tolist()
    return found


def _independent(deck: Any) -> Tensor | None:  # noqa: ANN401 - a private class
    """A minibatch with repetition; all data where there is no more."""
    term, size = deck._term, deck._batch_size  # noqa: SLF001 - what is replaced
    if term.size is not None and term.size <= size:
        return None
    drawn: Tensor | None = term.draw(size, deck._generator)  # noqa: SLF001
    return drawn


def _adapt(
    *, limited_width: bool = True, whole_first: bool = True
) -> Callable[..., Any]:
    """``AutoStrength.adapt`` without the limit of widths, or without a first strength.

    The limit is that of a constraint that was far from its bound; and strengths of zero
    were there before.
    """
    original = import_module(f"{PRACTICE}.strength").AutoStrength.adapt

    def adapt(self: Any, anchor: Any) -> Any:  # noqa: ANN401 - of a private module
        if not limited_width:
            self._largest = dict.fromkeys(anchor.values, math.inf)
        if not whole_first:
            self._strengths = self._strengths or dict.fromkeys(anchor.values, 0.0)
        return original(self, anchor)

    return adapt


def _no_floor(*_: object, **__: object) -> float:
    return 0.0


def _nothing(*_: object, **__: object) -> None:
    return None


def _never(*_: object, **__: object) -> bool:
    return False


def _all_used(term: object, parameters: list[Tensor]) -> list[int]:
    del term
    return [0] * len(parameters)


def _ten(inner_steps: int | None, steps: int) -> int:
    return min(10, steps) if inner_steps is None else inner_steps


def _ones(problem: Problem, counts: object) -> Any:  # noqa: ANN401 - an array
    del counts
    return np.ones(dimension(problem.parameters))


def _everywhere(anchor: Any, steepness: Mapping[str, float], moved: float) -> list[str]:  # noqa: ANN401 - of a private module
    del anchor, moved
    return list(steepness)


WEAK: dict[str, Any] = {
    f"{PRACTICE}.strength.FADED": 0.0,
    f"{PRACTICE}.strength.AutoStrength.adapt": _adapt(
        limited_width=False, whole_first=False
    ),
    f"{PRACTICE}.patience.SOON": 10**6,
    f"{METHODS}.penalized.choose_inner_steps": _ten,
}
"""What alone changes few problems, and together few as well."""
FAR = {f"{PRACTICE}.strength._is_far": _never}
"""What is special far from a bound."""
LEAST = {f"{PRACTICE}.strength.FLOOR": 0.0, f"{PRACTICE}.patience.MOST": 1e30}
"""The least strength, and the most that patience asks for."""

TABLE: tuple[Ablation, ...] = (
    CHANCE,
    # --- steps and how long they are ---
    Ablation(
        "rows_in_use",
        "the default lr counts only the parameters that an example uses: all of them",
        {f"{PRACTICE}.defaults._in_use": _all_used},
        matters=_is_large,
    ),
    Ablation(
        "parameter_count",
        "the default lr falls with the number of parameters: it is 0.1",
        {f"{METHODS}.penalized.default_lr": lambda _: 0.1},
        matters=_is_large,
    ),
    Ablation(
        "far_lr",
        "steps are lengthened for a start that is far from feasible: they are not",
        {f"{METHODS}.penalized.far_lr": _no_floor},
    ),
    Ablation(
        "inner_steps_divide",
        "K is near 10 and divides the steps: it is 10",
        {f"{METHODS}.penalized.choose_inner_steps": _ten},
    ),
    Ablation(
        "warm_up",
        "the first twentieth of the steps is shorter: full steps at once",
        {f"{METHODS}.optimizer.base_steps.WARM_UP": 1e-9},
    ),
    Ablation(
        "short_memory",
        "Adam's second beta is 0.95: it is torch's 0.999",
        {f"{METHODS}.optimizer.base_steps.FORGETTING": 0.999},
    ),
    Ablation(
        "cosine", "steps decay as a cosine: linearly", options={"decay": "linear"}
    ),
    Ablation(
        "late_weight",
        "late inner iterates count for more in the next centre: all alike",
        options={"late_weight": 0.0},
    ),
    Ablation("prox", "the proximal pull: none", options={"prox_weight": 0.0}),
    Ablation(
        "edge",
        "at the edge of the ball Adam sees no pull outwards: it does",
        {f"{METHODS}.optimizer.edge.follow_edge_": _nothing},
        matters=_has_ball,
    ),
    Ablation(
        "frozen_statistics",
        "batch norm keeps its statistics in the second half: it gathers to the end",
        {"oneproj.training.loop.GATHERING": 1.0},
        matters=_has_norm,
    ),
    # --- strengths of the penalties ---
    Ablation(
        "balance_together",
        "multipliers of all constraints together: of each alone",
        {f"{PRACTICE}.strength.least_residual": _alone},
    ),
    Ablation(
        "balance_in_plain_numbers",
        "one or two multipliers in closed form: the general solver",
        {f"{PRACTICE}.strength.least_residual": _general},
    ),
    Ablation(
        "within_reach",
        "only constraints within reach get a multiplier: all do",
        {f"{PRACTICE}.strength._within_reach": _everywhere},
    ),
    Ablation(
        "strength_safety",
        "strengths are twice the multiplier: once",
        {f"{PRACTICE}.strength.SAFETY": 1.0},
    ),
    Ablation(
        "strength_kept",
        "a strength keeps 0.4 of its last value: nothing",
        {f"{PRACTICE}.strength.KEPT": 0.0},
    ),
    Ablation(
        "strength_floor",
        "a strength is at least 0.01 of what balances the objective: no least one",
        {f"{PRACTICE}.strength.FLOOR": 0.0},
    ),
    Ablation(
        "strength_first",
        "the first strength balances the objective alone: it is like the others",
        {f"{PRACTICE}.strength.AutoStrength.adapt": _adapt(whole_first=False)},
    ),
    Ablation(
        "strength_limit",
        "no planned push is more than 32 times the objective's: no limit",
        {f"{PRACTICE}.strength.MOST": 1e30},
    ),
    Ablation(
        "faded_sizes",
        "sizes of gradients are those of late: those of now",
        {f"{PRACTICE}.strength.FADED": 0.0},
    ),
    Ablation(
        "push_limit",
        "far from a bound the push in each update has a limit: none",
        {f"{METHODS}.penalized.limited_push": lambda *_: nullcontext()},
    ),
    Ablation(
        "rounded_hinge",
        "hinges are rounded near the bound: sharp",
        {f"{PRACTICE}.strength.ROUNDED": 0.0},
    ),
    Ablation(
        "width_limit",
        "no hinge is wider than the largest residual seen: no limit",
        {f"{PRACTICE}.strength.AutoStrength.adapt": _adapt(limited_width=False)},
    ),
    Ablation(
        "far",
        "bounds that are many moves away are treated apart: they are not",
        {f"{PRACTICE}.strength._is_far": _never},
    ),
    Ablation(
        "patience",
        "strengths rise while a residual does not fall: never",
        {f"{PRACTICE}.patience.Patience.floor": _no_floor},
    ),
    Ablation(
        "patience_slow",
        "patience after seven anchors: only far from a bound",
        {f"{PRACTICE}.patience.ANCHORS": 10**6},
    ),
    Ablation(
        "patience_far",
        "far from a bound patience ends after three anchors: after seven",
        {f"{PRACTICE}.patience.SOON": 10**6},
    ),
    Ablation(
        "patience_most",
        "patience raises up to 32 times: without end",
        {f"{PRACTICE}.patience.MOST": 1e30},
    ),
    Ablation(
        "weak",
        "faded sizes, first strengths, the limit of widths, short patience far from a "
        "bound, a K that divides: none of it",
        WEAK,
    ),
    Ablation(
        "weak_and_far",
        "that, and the limit of pushes far from a bound: none of it",
        WEAK | FAR,
    ),
    Ablation(
        "weak_and_far_and_least",
        "that, the least strength and the limit of patience: none of it",
        WEAK | FAR | LEAST,
    ),
    # --- what updates and anchors look at ---
    Ablation(
        "larger_minibatches",
        "small models of tables see 256 examples: 64",
        {"oneproj.oracles.plan.LARGEST": 64},
    ),
    Ablation(
        "at_once_cheap",
        "small constraint data is seen as a whole: only two minibatches of it",
        {"oneproj.oracles.plan.CHEAP": 0},
    ),
    Ablation(
        "at_once",
        "small constraint data is seen as a whole: never",
        {"oneproj.oracles.plan.CHEAP": 0, "oneproj.oracles.plan.AT_ONCE": 0},
    ),
    Ablation(
        "sampled_anchors",
        "costly anchors look at a sample: at all data",
        {"oneproj.oracles.plan.AFFORDABLE": 10**15},
        matters=_is_large,
    ),
    Ablation(
        "reused_minibatches",
        "a minibatch of a constraint serves three updates: one",
        {"oneproj.oracles.anchored.SERVES": 1},
    ),
    Ablation(
        "anchored",
        "minibatches of constraints are corrected by the anchor: plain minibatches",
        options={"oracle": "minibatch"},
    ),
    Ablation(
        "deck",
        "minibatches without repetition within an epoch: independent",
        {"oneproj.oracles.base.Deck.deal": _independent},
    ),
    # --- SLSQP, on problems of few parameters ---
    Ablation(
        "slsqp",
        "SLSQP with all of its mechanisms, to compare the next ones with",
        options={"method": "slsqp"},
        matters=_is_small,
    ),
    Ablation(
        "slsqp_units",
        "SLSQP works in units of the parameters' gradients: all are 1",
        {f"{METHODS}.slsqp.parameter_units": _ones},
        {"method": "slsqp"},
        _is_small,
        against="slsqp",
    ),
    Ablation(
        "slsqp_stages",
        "SLSQP begins again from where it stopped: once only",
        {f"{METHODS}.sqp.stages.MOST_STAGES": 1},
        {"method": "slsqp"},
        _is_small,
        against="slsqp",
    ),
    Ablation(
        "slsqp_astray",
        "a stage that goes far astray is made again with bounds: it is not",
        {f"{METHODS}.sqp.stages.FAR": math.inf},
        {"method": "slsqp"},
        _is_small,
        against="slsqp",
    ),
    Ablation(
        "slsqp_anew",
        "a doubtful end is compared with a point near the start: it is not",
        {f"{METHODS}.sqp.stages.Stages._is_doubtful": _never},
        {"method": "slsqp"},
        _is_small,
        against="slsqp",
    ),
)
"""Most of what they patch is private: after a move of modules, change it here."""

ABLATIONS: dict[str, Ablation] = {ablation.name: ablation for ablation in TABLE}
"""By name."""


def concerned(ablation: Ablation, build: Callable[[int], Problem]) -> bool:
    """Whether a mechanism can change the runs of a problem at all.

    Example:
        >>> from benchmarks.train_battery.problems import CASES
        >>> concerned(ABLATIONS["edge"], CASES["wine_class_caps"].build)
        False
    """
    return ablation.matters is _always or ablation.matters(build(0))


__all__ = [
    "ABLATIONS",
    "CHANCE",
    "NOTHING",
    "TABLE",
    "Ablation",
    "concerned",
    "switched_off",
]
