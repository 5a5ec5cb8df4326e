"""A run between two updates: a state to save, and to go on from bit for bit.

What is compared before a state is taken over: the ``outline`` of the run; then the
value of every term on a sample of its data, at the point of the checkpoint
(``samples``). Other data, another loss or another frozen layer give other values. What
the sample does not hold is the user's to keep.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from oneproj.arguments import as_path
from oneproj.errors import CheckpointError
from oneproj.methods.base import AbstractMethod
from oneproj.methods.setting import Setting
from oneproj.parameters import Vector, snapshot
from oneproj.problem import Problem
from oneproj.runs.checkpoints import State, read_checkpoint
from oneproj.runs.history import History
from oneproj.runs.outline import outline, refuse_others
from oneproj.runs.samples import check_sample, sample_values

Location: TypeAlias = str | PathLike[str]

PARTS = (
    *("update", "outline", "parameters", "method", "sampling", "selection"),
    *("counts", "history", "model", "sample"),
)
"""What the state of a run holds."""


@dataclass(frozen=True)
class Run:
    """Everything that determines the updates that are still to come.

    Args:
        setting: Problem, counts and generators.
        method: Its own variables.
        history: What was recorded, and the seconds so far.
        settings: By name, as ``Solution.settings`` has them before the run.
    """

    setting: Setting
    method: AbstractMethod
    history: History
    settings: Mapping[str, Any]

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
        }

    def load_state_dict(self, state: State) -> int:
        """Take a state over; returns the update after which it was saved.

        Raises:
            CheckpointError: It is of another run; the message names the difference.
        """
        _refuse_strangers(state)
        refuse_others(state["outline"], self._outline)
        problem, model = self.setting.problem, self.setting.problem.model
        before = snapshot(problem.parameters), copy.deepcopy(_model_state(model))
        _load(problem, state["parameters"], state["model"])
        try:
            check_sample(problem, state["sample"])
            self.method.load_state_dict(state["method"])
        except BaseException:
            _load(problem, *before)
            raise
        self.setting.sampling.set_state(state["sampling"])
        self.setting.selection.set_state(state["selection"])
        for name, count in state["counts"].items():
            setattr(self.setting.counts, name, count)
        self.history.load_state_dict(state["history"])
        return int(state["update"])

    @cached_property
    def _outline(self) -> dict[str, str]:
        """The outline of the run before its first update, or before it is resumed."""
        return outline(self.setting.problem, self.settings, self.method.state_dict())


def resume_run(
    run: Run, checkpoint: Path | None, *, resume: Location | bool | None
) -> int:
    """Bring a run to where it is to go on; returns the updates that are done.

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
    return 0 if source is None else run.load_state_dict(read_checkpoint(source))


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


def _refuse_strangers(state: State) -> None:
    missing = [name for name in PARTS if name not in state]
    if missing:
        message = (
            f"The checkpoint is whole, but it is not that of a run: it has no "
            f"{', '.join(missing)}. Something else wrote it. Nothing was loaded. Pass "
            "the path that was given to solve(checkpoint=...), or start anew."
        )
        raise CheckpointError(message)
