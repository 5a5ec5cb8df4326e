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
from oneproj.vectors.arithmetic import on_devices, snapshot

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
        """Go on with a record; its seconds count, those in between do not.

        Raises:
            SchemaError: It is not the record of such a run.

        Example:
            >>> first, second = History([], steps=2), History([], steps=2)
            >>> _ = first.add(1, 0.5, {})
            >>> second.load_state_dict(first.state_dict())
            >>> second.add(2, 0.4, {}).update, second.columns["objective"]
            (2, [0.5, 0.4])
        """
        columns, pending = state["columns"], state["pending"]
        schema.check_names(columns, "history.columns", self.columns)
        schema.check_list(
            columns["update"], "history.columns", 0, MAX_ROWS + self.steps
        )
        rows = len(columns["update"])
        schema.check_like(
            columns, dict.fromkeys(columns, [math.inf] * rows), "history.columns"
        )
        schema.check_names(
            pending, "history.pending", self.columns, self.columns if pending else ()
        )
        schema.check_like(pending, dict.fromkeys(pending, math.inf), "history.pending")
        for update in [*columns["update"], *([pending["update"]] if pending else [])]:
            schema.check_range(update, "history.update", 1, self.steps)
        if state["outer"] is not None:
            schema.check_range(state["outer"], "history.outer", 0)
        self.seconds_before = schema.check_range(
            state["seconds"], "history.seconds", 0.0
        )
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

    def state_dict(self) -> State:
        """The point as plain containers; tensors are not copied."""
        return dict(vars(self))

    def load_state_dict(self, state: State, problem: Problem) -> None:
        """Take such a state over, on the devices of the parameters.

        Raises:
            SchemaError: It is neither empty nor a point of the problem.
        """
        objective, point, buffers = (state[f.name] for f in dataclasses.fields(self))
        if objective is None:
            schema.require(point == [] and buffers == {}, state, "start", "empty")
            return
        schema.check_like(objective, 0.0, "start.objective")
        schema.check_like(point, problem.parameters, "start.parameters")
        _check_buffers(buffers, problem.model)
        self.objective, self.buffers = objective, buffers
        self.parameters = on_devices(point, problem.parameters)


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
            "start": self.start.state_dict(),
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
            self.method.load_state_dict(state["method"])
            self.history.load_state_dict(state["history"])
            self.start.load_state_dict(state["start"], problem)
            self._load_best_anchor(state["best anchor"])
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

    def _load_best_anchor(self, state: State) -> None:
        """Take over the best feasible anchor, a point like the start."""
        own = self.context.best_anchor
        schema.check_names(state, "best anchor", vars(own))
        schema.check_like(state["total"], 0.0, "best anchor.total")
        schema.check_range(state["count"], "best anchor.count", 0)
        schema.check_like(state["moved"], own.moved, "best anchor.moved")
        point = Start()
        point.load_state_dict(state, self.context.problem)
        vars(own).update(state | vars(point))

    def _check(self, state: State) -> None:
        """Compare a state with that of this run, which is new."""
        problem, own = self.context.problem, self._parts()
        terms = (problem.objective, *problem.constraints.values())
        own["sample"] = {term.name: math.inf for term in terms}
        schema.check_plain(state, "it")
        schema.check_names(state, "it", own | {"update": 0})
        # Another run differs in its outline first: that says most to the user.
        for name, words in state["outline"].items():
            schema.require(type(words) is str, words, f"outline.{name}", "a string")
        refuse_others(state["outline"], self._outline)
        schema.check_range(state["update"], "update", 0, self.context.steps)
        own["model"]["buffers"] = {}  # a module may add some as it goes
        schema.check_like(state, own | {"update": 0, "outline": {}}, "it")
        for name, count in state["counts"].items():
            schema.check_range(count, f"counts.{name}", 0)
        _check_buffers(state["model"]["buffers"], problem.model)
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
    own = tensor.detach()
    return own.clone() if own.untyped_storage().nbytes() > own.nbytes else own


def _model_buffers(model: torch.nn.Module | None) -> dict[str, Tensor]:
    """The buffers of a model, which calls change, by name."""
    return {} if model is None else dict(model.named_buffers())


def _check_buffers(state: State, model: torch.nn.Module | None) -> None:
    """Require values of a model's buffers; a module may add some as it goes."""
    modules = {} if model is None else dict(model.named_modules())
    buffers = _model_buffers(model)
    schema.check_names(state, "buffers", state)
    for name, kept in state.items():
        path, _, own = name.rpartition(".")
        module = modules.get(path)
        # A new one must not take the place of anything else of the module.
        free = module is not None and own.isidentifier() and own not in dir(module)
        empty = module is not None and own in module._buffers  # noqa: SLF001 - no other name
        fits = isinstance(kept, Tensor) and (name in buffers or free or empty)
        schema.require(fits, name, "buffers", "buffers of the model")
        dtype = buffers[name].dtype if name in buffers else kept.dtype
        schema.check_tensor(kept, name, [None] * kept.dim(), dtype, within=None)


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
    path, _, own = name.rpartition(".")
    module = model.get_submodule(path)
    buffer = dict(module.named_buffers(recurse=False)).get(own)
    if buffer is not None and buffer.shape == kept.shape:
        buffer.copy_(kept)
    else:
        persistent = own not in module._non_persistent_buffers_set  # noqa: SLF001 - no other name
        module.register_buffer(own, kept.clone(), persistent=persistent)
