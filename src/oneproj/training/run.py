"""A run between two updates: its record, its start, and a state to go on from.

Before a state is loaded, three things are compared with those of the new run: the
``outline`` (settings, problem), the form of every entry, and the value of every term on
a sample of its data at the saved point.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oneproj import schema
from oneproj.certificates.kkt import ball_excess
from oneproj.errors import CheckpointError, NonFiniteError
from oneproj.methods.base import AbstractUpdater, Context
from oneproj.problem.problem import Problem
from oneproj.results import Counts, Update
from oneproj.training.checkpoints import (
    State,
    check_sample,
    outline,
    refuse_others,
    sample_values,
)
from oneproj.vectors.arithmetic import snapshot, state_on_devices

MAX_ROWS = 1000  # of a history; longer runs record every n-th update, to stay small


class History:
    """Collects what the method saw: update, objective, seconds, and each residual.

    Example:
        >>> history = History(["cap"], steps=2)
        >>> _ = history.add(1, 0.5, {"cap": 0.1}); _ = history.add(2, 0.4, {"cap": 0.0})
        >>> history.columns["objective"], history.columns["cap"]
        ([0.5, 0.4], [0.1, 0.0])
    """

    def __init__(self, constraints: Iterable[str], steps: int) -> None:
        """Start the clock."""
        self.steps = steps
        self._every = -(-steps // MAX_ROWS)
        self._start = time.perf_counter()
        self.seconds_before = 0.0  # of the run that this one resumes
        self._outer: int | None = None
        names = ("update", "objective", "seconds", *constraints)
        self.columns: dict[str, list[float]] = {name: [] for name in names}
        self._pending: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the run began, without those between a stop and its resume."""
        return self.seconds_before + time.perf_counter() - self._start

    def add(
        self,
        update: int,
        objective: float,
        residuals: Mapping[str, float],
        outer: int | None = None,
    ) -> Update:
        """Record an update if it is its turn, and describe it for the callbacks."""
        seconds = self.seconds
        row = {"update": update, "objective": objective, "seconds": seconds}
        row |= residuals
        self._pending = {name: row[name] for name in self.columns}
        if update % self._every == 0 or update == self.steps:
            self.close()
        closed = outer is not None and outer != (self._outer or 0)
        self._outer = outer
        values = dict(residuals)
        return Update(update, self.steps, objective, values, seconds, outer, closed)

    def close(self) -> None:
        """Record the last update, whether or not it was its turn."""
        for name, value in self._pending.items():
            self.columns[name].append(value)
        self._pending = {}

    def state_dict(self) -> State:
        """What was recorded, and the seconds so far."""
        return {
            "columns": {name: list(column) for name, column in self.columns.items()},
            "pending": dict(self._pending),
            "outer": self._outer,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a record; its seconds count, those in between do not.

        Example:
            >>> first, second = History([], steps=2), History([], steps=2)
            >>> _ = first.add(1, 0.5, {})
            >>> second.load_state_dict(first.state_dict())
            >>> second.add(2, 0.4, {}).update, second.columns["objective"]
            (2, [0.5, 0.4])
        """
        columns, pending = state["columns"], state["pending"]
        self.seconds_before = state["seconds"]
        self.columns = {name: list(column) for name, column in columns.items()}
        self._pending, self._outer = dict(pending), state["outer"]
        self._start = time.perf_counter()


@dataclass
class Start:
    """The point where a run begins, kept if it is feasible: no answer may be worse.

    The best feasible anchor of a run is such a point as well.

    Attributes:
        objective: Its objective on all data; None where the start is not feasible.
        parameters: A copy of them, where it is feasible.
        buffers: Of the problem's model, by name: training moves batch norm's.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> term = oneproj.function(w.sum)
        >>> problem, start = oneproj.Problem(w, term, {"cap": term <= 2.0}), Start()
        >>> start.keep_if_feasible(problem, Counts())
        >>> start.objective
        1.0
        >>> _ = w.data.fill_(9.0)
        >>> start.exchange(problem)
        >>> w.item(), start.parameters[0].item()
        (1.0, 9.0)
    """

    objective: float | None = None
    parameters: list[Tensor] = field(default_factory=list)
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def keep_if_feasible(self, problem: Problem, counts: Counts) -> None:
        """Copy the point that a problem holds if it is feasible, on all data.

        A value that is not finite is left to the first update, which reports it.
        """
        self.objective = _objective_if_feasible(problem, counts)
        if self.objective is not None:
            self.parameters, self.buffers = _copy_point(problem)

    def judge(self, problem: Problem, counts: Counts) -> None:
        """Find the objective of a point that was kept unjudged; None if infeasible.

        The problem holds what it held, afterwards.
        """
        self.exchange(problem)
        try:
            self.objective = _objective_if_feasible(problem, counts)
        finally:
            self.exchange(problem)

    def exchange(self, problem: Problem) -> None:
        """Make the problem hold this point, and this object the one that it held."""
        held = _copy_point(problem)
        _load_point(problem, self.parameters, self.buffers)
        self.parameters, self.buffers = held


def _objective_if_feasible(problem: Problem, counts: Counts) -> float | None:
    """The objective on all data where the parameters are; None if that is infeasible.

    Constraints are evaluated, and counted, up to the first that is violated.
    """
    if ball_excess(problem) > 0:
        return None
    try:
        for constraint in problem.constraints.values():
            counts.constraint_passes += 1
            if constraint.value() > 0:
                return None
        return problem.objective.value()
    except NonFiniteError:
        return None


@dataclass(frozen=True)
class Run:
    """Everything that determines the updates that are still to come.

    Args:
        context: Problem, counts and generators.
        method: Its own variables.
        history: What was recorded, and the seconds so far.
        settings: By name, as ``Solution.settings`` has them before the run.
        start: The point before the first update, if it is feasible.
    """

    context: Context
    method: AbstractUpdater
    history: History
    settings: Mapping[str, Any]
    start: Start = field(default_factory=Start)

    def state_dict(self, update: int) -> State:
        """The state after an update; tensors are copied only out of larger ones."""
        sample = sample_values(self.context.problem)
        return {"update": update, "sample": sample, **self._parts()}

    def _parts(self) -> State:
        context = self.context
        held = _model_buffers(context.problem.model).items()
        buffers = {name: _alone(buffer) for name, buffer in held}
        return {
            "outline": self._outline,
            "parameters": [_alone(p) for p in context.problem.parameters],
            "method": self.method.state_dict(),
            "sampling": context.sampling.get_state(),
            "selection": context.selection.get_state(),
            "counts": dataclasses.asdict(context.counts),
            "history": self.history.state_dict(),
            "model": {"buffers": buffers, "noise": torch.get_rng_state()},
            "start": dict(vars(self.start)),
            "best anchor": dict(vars(context.best_anchor)),
        }

    def load_state_dict(self, state: State) -> int:
        """Take a state over; returns the update after which it was saved.

        Raises:
            CheckpointError: It is of another run; the message names the difference.
        """
        problem = self.context.problem
        before, noise = _copy_point(problem), torch.get_rng_state()
        try:
            self._check(state)
            _load_point(problem, state["parameters"], state["model"]["buffers"])
            # Dropout, and a loss that adds noise, draw from the global generator.
            torch.default_generator.set_state(state["model"]["noise"])
            check_sample(problem, state["sample"])
            state = state_on_devices(state, problem.parameters)
            self.method.load_state_dict(state["method"])
            self.history.load_state_dict(state["history"])
            vars(self.start).update(state["start"])
            vars(self.context.best_anchor).update(state["best anchor"])
        except BaseException as error:
            _load_point(problem, *before)
            torch.default_generator.set_state(noise)
            if isinstance(error, CheckpointError) or not isinstance(error, Exception):
                raise
            message = (
                "The checkpoint is complete, but it is not that of a run that this "
                f"call can go on with: {error}. Something else wrote it, or it was "
                "changed. Nothing was loaded. Pass the path that was given to "
                "solve(checkpoint=...), or start anew."
            )
            raise CheckpointError(message) from error
        self.context.sampling.set_state(state["sampling"])
        self.context.selection.set_state(state["selection"])
        vars(self.context.counts).update(state["counts"])
        return int(state["update"])

    def _check(self, state: State) -> None:
        """Compare a state with that of this run, which is new."""
        problem, new = self.context.problem, self._parts()
        terms = problem.terms
        new["sample"] = {term.name: math.inf for term in terms}
        schema.check_plain(state, "it")
        schema.check_names(state, "it", new | {"update": 0})
        # Another run differs in its outline first: that says most to the user.
        for name, words in state["outline"].items():
            schema.require(type(words) is str, words, f"outline.{name}", "a string")
        refuse_others(state["outline"], self._outline)
        schema.check_range(state["update"], "update", 0, self.context.steps)
        new["model"]["buffers"] = {}  # a module may add some as it goes
        schema.check_like(state, new | {"update": 0, "outline": {}}, "it")
        for generator in (
            state["sampling"],
            state["selection"],
            state["model"]["noise"],
        ):
            torch.Generator().set_state(generator)

    @cached_property
    def _outline(self) -> dict[str, str]:
        """The outline of the run before its first update, or before it is resumed."""
        return outline(self.context.problem, self.settings, self.method.state_dict())


def _alone(tensor: Tensor) -> Tensor:
    """A tensor to save; copied if it is a part of a larger one, all of which would be.

    Example:
        >>> _alone(torch.zeros(9)[:2]).untyped_storage().nbytes()
        8
    """
    saved = tensor.detach()
    shared = saved.untyped_storage().nbytes() > saved.nbytes
    return saved.clone() if shared else saved


def _model_buffers(model: torch.nn.Module | None) -> dict[str, Tensor]:
    """The buffers of a model, which calls change, by name."""
    return {} if model is None else dict(model.named_buffers())


def _copy_point(problem: Problem) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Copies of the parameters, and of the buffers of the model."""
    held = _model_buffers(problem.model).items()
    return snapshot(problem.parameters), {k: b.detach().clone() for k, b in held}


@torch.no_grad()
def _load_point(
    problem: Problem, parameters: Iterable[Tensor], buffers: Mapping[str, Tensor]
) -> None:
    """Make a problem hold parameters, and its model buffers."""
    for p, kept in zip(problem.parameters, parameters, strict=True):
        p.copy_(kept)
    if (model := problem.model) is not None:
        for name, buffer in buffers.items():
            _load_buffer(model, name, buffer.to(problem.parameters[0].device))


def _load_buffer(model: torch.nn.Module, name: str, kept: Tensor) -> None:
    """Give a buffer its value; one that its module makes as it goes may be missing.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        >>> _load_buffer(model, "0.running_mean", torch.ones(2))
        >>> _load_buffer(model, "0.seen", torch.ones(()))
        >>> model[0].running_mean.tolist(), model[0].seen.item()
        ([1.0, 1.0], 1.0)
    """
    if (buffer := _model_buffers(model).get(name)) is not None:
        buffer.resize_(kept.shape).copy_(kept)
    else:
        path, _, last = name.rpartition(".")
        model.get_submodule(path).register_buffer(last, kept.clone())
