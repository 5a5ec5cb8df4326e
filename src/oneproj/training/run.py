"""The record of a run: what each update saw, and how long each phase took.

A run between two updates: a state to save, and to go on from bit for bit.

What is compared before a state is taken over: the ``outline`` of the run; then the
value of every term on a sample of its data, at the point of the checkpoint
(``samples``). Other data, another loss or another frozen layer give other values. What
the sample does not hold is the user's to keep.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from oneproj.arguments import as_path
from oneproj.certificates.feasibility import ball_excess
from oneproj.errors import CheckpointError, NonFiniteError, OneprojError
from oneproj.methods.base import AbstractUpdater
from oneproj.methods.context import Setting
from oneproj.problem.problem import Problem
from oneproj.results import Counts, Update
from oneproj.schema import (
    AbstractSchema,
    AsIs,
    EmptyOr,
    Equal,
    Fields,
    Integer,
    Items,
    Maybe,
    Named,
    Number,
    Text,
    require,
)
from oneproj.tensor_schema import PLAIN, GeneratorState, TensorSchema, vector_like
from oneproj.training.checkpoints import State, checked, read_checkpoint
from oneproj.training.fingerprints import (
    check_sample,
    outline,
    refuse_others,
    sample_values,
)
from oneproj.vectors.arithmetic import Vector, on_devices, snapshot

MAX_ROWS = 1000
"""Longer runs record every n-th update, so that a long run stays small in memory."""


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
        self.seconds_before = 0.0
        """Of the run that this one resumes."""
        self._outer: int | None = None
        self._constraints = tuple(constraints)
        names = ("update", "objective", "seconds", *self._constraints)
        self.columns: dict[str, list[float]] = {name: [] for name in names}
        self._pending: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the run began, but for those between a stop and its resume."""
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
        self._pending = row | {name: residuals[name] for name in self._constraints}
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

    def state_dict(self) -> dict[str, Any]:
        """What was recorded, and the seconds so far."""
        return {
            "columns": {name: list(column) for name, column in self.columns.items()},
            "pending": dict(self._pending),
            "outer": self._outer,
            "seconds": self.seconds,
        }

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        return _HistorySchema(tuple(self.columns), self.steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a record; its seconds count, those in between do not.

        Example:
            >>> first, second = History([], steps=2), History([], steps=2)
            >>> _ = first.add(1, 0.5, {})
            >>> second.load_state_dict(first.state_dict())
            >>> second.add(2, 0.4, {}).update, second.columns["objective"]
            (2, [0.5, 0.4])
        """
        self.columns = {name: list(column) for name, column in state["columns"].items()}
        self._pending, self._outer = dict(state["pending"]), state["outer"]
        self.seconds_before = state["seconds"]
        self._start = time.perf_counter()


@dataclass(frozen=True)
class _HistorySchema(AbstractSchema):
    """Columns of one length, and a row that is not in them yet, or none."""

    names: tuple[str, ...]
    steps: int

    def check(self, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever a file had
        number = AsIs(Number())  # a method may have seen no objective yet: NaN
        column = Items(number, most=MAX_ROWS + self.steps)
        state: dict[str, Any] = Fields(
            {
                "columns": Named(column, self.names, complete=True),
                "pending": EmptyOr(Named(number, self.names, complete=True)),
                "outer": Maybe(Integer(least=0)),
                "seconds": Number(least=0.0, finite=True),
            }
        ).check(value, where)
        columns = state["columns"]
        lengths = {len(column) for column in columns.values()}
        require(len(lengths) == 1, lengths, f"{where}.columns", "of one length")
        place = AsIs(Integer(least=1, most=self.steps))
        pending = [state["pending"]["update"]] if state["pending"] else []
        for update in (*columns["update"], *pending):
            place.check(update, f"{where}.columns.update")
        return state


class Stopwatch:
    """Seconds per phase, in the order in which the phases ended.

    Example:
        >>> watch = Stopwatch(); watch.lap("train"); list(watch.laps)
        ['train']
    """

    def __init__(self) -> None:
        """Start the first phase."""
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str, before: float = 0.0) -> None:
        """End a phase and start the next; ``before`` was spent on it in another run."""
        now = time.perf_counter()
        self.laps[phase] = before + now - self._last
        self._last = now


Location: TypeAlias = str | PathLike[str]


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
        if self.objective is None:
            return
        self.parameters = snapshot(problem.parameters)
        if problem.model is not None:
            named = problem.model.named_buffers()
            self.buffers = {name: buffer.detach().clone() for name, buffer in named}

    def judge(self, problem: Problem, counts: Counts) -> None:
        """Find the objective of a point that was kept unjudged; None if infeasible.

        The problem holds what it held, afterwards.
        """
        self.exchange(problem)
        try:
            self.objective = _objective_if_feasible(problem, counts)
        finally:
            self.exchange(problem)

    @torch.no_grad()
    def exchange(self, problem: Problem) -> None:
        """Make the problem hold this point, and this object the one that it held."""
        for p, kept in zip(problem.parameters, self.parameters, strict=True):
            held = p.detach().clone()
            p.copy_(kept)
            kept.copy_(held)
        if (model := problem.model) is not None:
            held_buffers = dict(model.named_buffers())
            for name in self.buffers.keys() & held_buffers.keys():
                held = held_buffers[name].detach().clone()
                _load_buffer(model, name, self.buffers[name])
                self.buffers[name] = held

    def state_dict(self) -> State:
        """The point as plain containers; tensors are not copied."""
        return dict(vars(self))

    def load_state_dict(self, state: State, like: Vector) -> None:
        """Take such a state over, on the devices of the parameters."""
        self.objective = state["objective"]
        self.parameters = on_devices(
            state["parameters"], like[: len(state["parameters"])]
        )
        device = like[0].device
        self.buffers = {name: t.to(device) for name, t in state["buffers"].items()}


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
        setting: Problem, counts and generators.
        method: Its own variables.
        history: What was recorded, and the seconds so far.
        settings: By name, as ``Solution.settings`` has them before the run.
        start: The point before the first update, if it is feasible.
    """

    setting: Setting
    method: AbstractUpdater
    history: History
    settings: Mapping[str, Any]
    start: Start = field(default_factory=Start)

    def state_dict(self, update: int) -> State:
        """The state after an update; tensors are copied only out of larger ones."""
        setting = self.setting
        return {
            "update": update,
            "outline": self._outline,
            "parameters": [_alone(p) for p in setting.problem.parameters],
            "method": self.method.state_dict(),
            "sampling": setting.sampling.get_state(),
            "selection": setting.selection.get_state(),
            "counts": dataclasses.asdict(setting.counts),
            "history": self.history.state_dict(),
            "model": _model_state(setting.problem.model),
            "sample": sample_values(setting.problem),
            "start": self.start.state_dict(),
            "best anchor": dict(vars(setting.best_anchor)),
        }

    def load_state_dict(self, state: State) -> int:
        """Take a state over; returns the update after which it was saved.

        Raises:
            CheckpointError: It is of another run; the message names the difference.
        """
        schemas = self._schemas()
        # Another run differs in its outline first: that says most to the user.
        words = Fields(dict.fromkeys(schemas, PLAIN) | {"outline": schemas["outline"]})
        refuse_others(checked(words, state)["outline"], self._outline)
        state = checked(Fields(schemas), state)
        problem, model = self.setting.problem, self.setting.problem.model
        before = snapshot(problem.parameters), copy.deepcopy(_model_state(model))
        _load(problem, state["parameters"], state["model"])
        try:
            _check_sample(problem, state["sample"])
            self.method.load_state_dict(state["method"])
        except BaseException:
            _load(problem, *before)
            raise
        self.setting.sampling.set_state(state["sampling"])
        self.setting.selection.set_state(state["selection"])
        vars(self.setting.counts).update(state["counts"])
        self.history.load_state_dict(state["history"])
        self.start.load_state_dict(state["start"], problem.parameters)
        point, anchor = Start(), state["best anchor"]
        point.load_state_dict(anchor, problem.parameters)
        vars(self.setting.best_anchor).update(anchor | vars(point))
        return int(state["update"])

    def _schemas(self) -> dict[str, AbstractSchema]:
        """The schema of each part of the state; components have their own."""
        setting, problem = self.setting, self.setting.problem
        terms = (problem.objective, *problem.constraints.values())
        return {
            "update": Integer(least=0, most=setting.steps),
            "outline": Named(Text()),
            "parameters": vector_like(problem.parameters),
            "method": self.method.state_schema(),
            "sampling": GeneratorState(),
            "selection": GeneratorState(),
            "counts": Fields(
                {field.name: Integer(least=0) for field in dataclasses.fields(Counts)}
            ),
            "history": self.history.state_schema(),
            "model": Fields(
                {"buffers": _Buffers(problem.model), "noise": GeneratorState()}
            ),
            "sample": Named(Number(), [term.name for term in terms], complete=True),
            "start": _StartState(problem),
            "best anchor": _StartState(
                problem, {"total": Number(finite=True), "count": Integer(least=0)}
            ),
        }

    @cached_property
    def _outline(self) -> dict[str, str]:
        """The outline of the run before its first update, or before it is resumed."""
        return outline(self.setting.problem, self.settings, self.method.state_dict())


def resume_run(
    run: Run, checkpoint: Path | None, *, resume: Location | bool | None
) -> int:
    """Bring a run to where it is to go on; returns the updates that are done.

    A run that begins keeps its start, if that is feasible.

    Args:
        run: Not begun yet.
        checkpoint: Where it will be saved, if it will.
        resume: A path, which must exist; True for ``checkpoint``, if it exists; None or
            False to start anew, which a checkpoint that exists forbids.

    Raises:
        CheckpointError: There is nothing to resume, or something that would be lost.
    """
    if resume is True:
        if checkpoint is None:
            message = (
                "resume=True goes on from the checkpoint of the same call, but none is "
                "given. Pass checkpoint=path as well, or resume=path."
            )
            raise CheckpointError(message)
        resume = checkpoint if checkpoint.exists() else None
    begins = resume is None or resume is False
    source = None if begins else as_path("resume", resume, also=", True or None")
    if checkpoint is not None and checkpoint.exists() and checkpoint != source:
        message = (
            f"There is a checkpoint at {str(checkpoint)!r} already, and this run would "
            "overwrite it. Pass resume=True to go on from it (and to start where there "
            "is none), or delete it, or choose another path."
        )
        raise CheckpointError(message)
    if source is not None:
        return run.load_state_dict(read_checkpoint(source))
    run.start.keep_if_feasible(run.setting.problem, run.setting.counts)
    return 0


def _alone(tensor: Tensor) -> Tensor:
    """A tensor to save; copied if it is a part of a larger one, all of which would be.

    Example:
        >>> _alone(torch.zeros(9)[:2]).untyped_storage().nbytes()
        8
    """
    own = tensor.detach()
    return own.clone() if own.untyped_storage().nbytes() > own.nbytes else own


def _model_state(model: torch.nn.Module | None) -> State:
    """What calls change: the model's buffers, and where noise is drawn from."""
    named = () if model is None else model.named_buffers()
    buffers = {name: _alone(buffer) for name, buffer in named}
    return {"buffers": buffers, "noise": torch.get_rng_state()}


@dataclass(frozen=True)
class _Buffers(AbstractSchema):
    """Values of a model's buffers, by name; a module may add some as it goes."""

    model: torch.nn.Module | None

    def check(self, value: Any, where: str) -> dict[str, Tensor]:  # noqa: ANN401 - whatever a file had
        if self.model is None:
            require(value == {}, value, where, "empty")
            return {}
        modules = dict(self.model.named_modules())
        buffers = dict(self.model.named_buffers())
        state = Named(PLAIN).check(value, where)
        for name, kept in state.items():
            require(isinstance(kept, Tensor), kept, f"{where}.{name}", "a tensor")
            path, _, own = name.rpartition(".")
            known = modules.get(path)
            # A new one must not take the place of anything else of the module.
            free = known is not None and own.isidentifier() and own not in dir(known)
            fits = name in buffers or free or _is_empty_buffer(known, own)
            require(fits, name, where, "named like buffers of the model")
            dtype = buffers[name].dtype if name in buffers else kept.dtype
            shape = (None,) * kept.dim()
            TensorSchema(shape, dtype, finite=False).check(kept, f"{where}.{name}")
        return state


@dataclass(frozen=True)
class _StartState(AbstractSchema):
    """The state of a ``Start``: empty, or a point of the problem."""

    problem: Problem
    more: Mapping[str, AbstractSchema] = field(default_factory=dict)
    """Of what is kept beside the point."""

    def check(self, value: Any, where: str) -> State:  # noqa: ANN401 - whatever a file had
        kept = isinstance(value, dict) and value.get("objective") is not None
        like = self.problem.parameters if kept else []
        parts: dict[str, AbstractSchema] = {
            "objective": Number(finite=True) if kept else Equal(None),
            "parameters": vector_like(like),
            "buffers": _Buffers(self.problem.model if kept else None),
        }
        return Fields({**parts, **self.more}).check(value, where)  # type: ignore[no-any-return]


def _is_empty_buffer(module: torch.nn.Module | None, name: str) -> bool:
    """Whether a module has a buffer of that name without a value yet."""
    return module is not None and name in module._buffers  # noqa: SLF001 - no other name


def _check_sample(problem: Problem, saved: Mapping[str, float]) -> None:
    """Compare values on a sample; what cannot be computed is not this problem's state.

    Raises:
        CheckpointError: They differ, or a term fails with the saved model.
    """
    try:
        check_sample(problem, saved)
    except OneprojError:
        raise
    except Exception as error:  # the user's own functions: of any kind
        message = (
            "With the parameters and buffers of the checkpoint a term of the problem "
            f"cannot be computed: {error}. They are not those of this model. Nothing "
            "was loaded. Start anew with another checkpoint path."
        )
        raise CheckpointError(message) from error


@torch.no_grad()
def _load(problem: Problem, parameters: Vector, model: State) -> None:
    """Make a problem hold parameters, and what its model had beside them."""
    for p, kept in zip(problem.parameters, parameters, strict=True):
        p.copy_(kept)
    if (owner := problem.model) is not None:
        for name, kept in model["buffers"].items():
            _load_buffer(owner, name, kept.to(problem.parameters[0].device))
    # Dropout, and a loss that adds noise, draw from the global generator, which a
    # resumed run has to go on with.
    torch.default_generator.set_state(model["noise"])


def _load_buffer(model: torch.nn.Module, name: str, kept: Tensor) -> None:
    """Give a buffer its value; one that its module makes as it goes may not be there.

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
