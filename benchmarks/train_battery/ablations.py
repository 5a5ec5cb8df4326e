"""The mechanisms of training that can be switched off, one at a time.

An ablation changes arguments of ``solve``: numbers of ``oneproj.Defaults``, each set to
a value with which its mechanism does nothing, or options of the method. ``PATCHED`` has
the few mechanisms that no argument controls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from oneproj import Defaults, Problem

NONE = 1e-30
"""Stands for 0, which ``Defaults`` refuses."""
NEVER = 10**15
"""Stands for a count that no run reaches."""


def _always(problem: Problem) -> bool:
    """Every problem."""
    del problem
    return True


def _has_ball(problem: Problem) -> bool:
    return math.isfinite(problem.radius)


def _trains_batch_norm(problem: Problem) -> bool:
    modules = () if problem.model is None else problem.model.modules()
    norms = (nn.BatchNorm1d, nn.BatchNorm2d)
    return any(isinstance(module, norms) and module.training for module in modules)


@dataclass(frozen=True)
class Ablation:
    """A mechanism that is switched off.

    Example:
        >>> ABLATIONS["late_weight"].arguments()
        {'late_weight': 0.0}
        >>> ABLATIONS["patience"].arguments()["defaults"].changed()
        {'patience': 1000000000000000}
    """

    name: str
    what: str
    """What the mechanism does, and what is in its place."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``oneproj.Defaults`` with other values."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of ``solve``."""
    patches: Mapping[str, Any] = field(default_factory=dict)
    """Dotted names of attributes with other values; for ``PATCHED`` only."""
    matters: Callable[[Problem], bool] = _always
    """Whether it can change a run of that problem at all."""
    seed_offset: int = 0
    """Added to the seed of ``solve``, not to that of the problem."""

    def arguments(self) -> dict[str, Any]:
        """What to pass to ``solve``."""
        changed = {"defaults": replace(Defaults(), **self.defaults)}
        return (changed if self.defaults else {}) | dict(self.options)


NOTHING = Ablation("", "all mechanisms are on")
CHANCE = Ablation("chance", "nothing is off, other minibatches", seed_offset=1000)
"""What differs from its runs is noise: the other rows are measured against it."""


@contextmanager
def switched_off(ablation: Ablation) -> Iterator[dict[str, Any]]:
    """Patch what has no argument while a block runs; gives the arguments of ``solve``.

    Example:
        >>> with switched_off(ABLATIONS["prox_weight"]) as arguments:
        ...     arguments
        {'prox_weight': 0.0}
    """
    with ExitStack() as stack:
        for name, value in ablation.patches.items():
            stack.enter_context(patch(name, value))
        yield ablation.arguments()


ARGUMENTS: tuple[Ablation, ...] = (
    # --- steps and how long they are ---
    Ablation(
        "lr_halvings",
        "the first step is as short as what is tried asks: 0.05 or 0.1",
        {"lr_halvings": 1},
    ),
    Ablation(
        "far_start_path",
        "steps are lengthened for a start that is far from feasible: they are not",
        {"far_start_path": NONE},
    ),
    Ablation(
        "decay",
        "steps warm up and decay as a cosine: they decay linearly from the first",
        options={"decay": "linear"},
    ),
    Ablation("base", "steps are Adam's: SGD's", options={"base": "sgd"}),
    Ablation(
        "late_weight",
        "late inner iterates count for more in the next centre: all alike",
        options={"late_weight": 0.0},
    ),
    Ablation("prox_weight", "the proximal pull: none", options={"prox_weight": 0.0}),
    Ablation(
        "warm_up",
        "the first twentieth of the steps is shorter: full steps at once",
        {"warm_up": NONE},
    ),
    Ablation(
        "short_memory",
        "Adam's second beta is 0.95: it is torch's 0.999",
        {"adam_beta2": 0.999},
    ),
    # --- strengths of the penalties ---
    Ablation(
        "strength_over_multiplier",
        "strengths are twice the multiplier: once",
        {"strength_over_multiplier": 1.0},
    ),
    Ablation(
        "strength_decay",
        "a strength keeps 0.4 of its last value: nothing",
        {"strength_decay": NONE},
    ),
    Ablation(
        "strength_floor",
        "a strength is at least 0.01 of what balances the objective: no least one",
        {"strength_floor": NONE},
    ),
    Ablation(
        "hinge_width",
        "hinges are rounded near the bound: sharp",
        {"hinge_width": NONE},
    ),
    Ablation(
        "patience",
        "strengths rise while a residual does not fall: never",
        {"patience": NEVER},
    ),
    Ablation(
        "push_limit",
        "no push is more than 32 times the objective's: no limit",
        {"push_limit": 1e30},
    ),
    Ablation(
        "far_moves",
        "bounds that are many moves away are treated apart: they are not",
        {"far_moves": 1e30},
    ),
    # --- what updates and anchors look at ---
    Ablation(
        "largest_batch_size",
        "small models of tables see 1,024 examples: 128",
        {"largest_batch_size": 128},
    ),
    Ablation(
        "whole_data",
        "constraints of two minibatches are seen as a whole: only of one",
        {"whole_data_batches": 1},
    ),
    Ablation(
        "anchor_work",
        "costly anchors look at a sample: at all data",
        {"anchor_work": NEVER},
    ),
    Ablation(
        "oracle",
        "minibatches of constraints are corrected by the anchor: plain minibatches",
        options={"oracle": "minibatch"},
    ),
)
"""Switched off by an argument; named after it where there is one."""


def _no(*_: object, **__: object) -> bool:
    return False


def _independent(sampler: Any) -> Tensor | None:  # noqa: ANN401 - a private class
    """A minibatch with repetition; all data where there is no more."""
    term, size = sampler._term, sampler._batch_size  # noqa: SLF001 - what is replaced
    if term.size is not None and term.size <= size:
        return None
    drawn: Tensor | None = term.draw(size, sampler._generator)  # noqa: SLF001
    return drawn


PATCHED: tuple[Ablation, ...] = (
    Ablation(
        "edge",
        "at the edge of the ball Adam sees no pull outwards: it does",
        patches={"oneproj.methods.base_steps.follow_edge_": _no},
        matters=_has_ball,
    ),
    Ablation(
        "frozen_statistics",
        "batch norm keeps its statistics in the second half: it gathers to the end",
        patches={"oneproj.training.loop.Loop._keeps": _no},
        matters=_trains_batch_norm,
    ),
    Ablation(
        "without_repetition",
        "minibatches without repetition within an epoch: independent",
        patches={"oneproj.oracles.base.Sampler.draw": _independent},
    ),
)
"""No argument controls them. After a move of modules, change the names here."""

TABLE: tuple[Ablation, ...] = (CHANCE, *ARGUMENTS, *PATCHED)
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
