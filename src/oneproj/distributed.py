"""Many processes: every collective of the library is in this module.

Data cannot be declared as sharded yet, so all ranks of the default process group of
``torch.distributed`` must pose the same problem: equal parameters, equal settings and
all of the data on each. Otherwise each rank finds a point that is feasible for its own
rows, and the ranks disagree. ``agreeing`` compares the ranks before a call,
``staying_in_step`` compares the parameters after it. A rank that ends in between shows
at the next comparison: the others raise a ``RankError``.

Without a process group, or with one rank, nothing is computed and nothing is sent.

Parameters are compared bit for bit, or replicas would drift apart. Numbers computed
from the data have room for rounding, which differs between machines (``Fact.room``).
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, distributed

from oneproj.arguments import plain
from oneproj.errors import InvalidProblemError, RankError

MOST_NAMED = 3
"""Differences that a message spells out."""
_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether an outer call compares the ranks already."""

Sent = TypeVar("Sent")
About = Literal["data", "parameters", "settings", "end"]
ADVICE: dict[About, str] = {
    "data": (
        "Each rank would find a point that is feasible for its own data only. Pass "
        "the same full data and constraints, in the same order, on every rank: data "
        "that is sharded over ranks (DistributedSampler) is not supported yet."
    ),
    "parameters": (
        "The ranks would train different models. Give every rank the same start: call "
        "torch.manual_seed before the model is built, load the same weights, or call "
        "torch.distributed.broadcast(p.data, src=0) for every parameter p."
    ),
    "settings": "The ranks would drift apart. Make the same call on every rank.",
    "end": (
        "The ranks have drifted apart: the parameters of each rank hold its own answer."
        " Causes: Ctrl-C or a callback ended the ranks at different updates; they "
        "resumed from different checkpoints; noise (torch.manual_seed has to be the "
        "same on every rank); operations that are not deterministic."
    ),
}
"""Why a difference matters and what to do, by what it is about."""


class Fact(NamedTuple):
    """A value that must be the same on all ranks."""

    value: str | float | None
    about: About
    room: float = 0.0
    """By how much a number may differ, because of rounding."""

    def agrees(self, other: Fact) -> bool:
        """Whether both are the same, up to rounding.

        Example:
            >>> Fact(1.0, "data", room=0.1).agrees(Fact(1.05, "data", room=0.1))
            True
            >>> Fact(math.nan, "data").agrees(Fact(math.nan, "data"))
            True
        """
        a, b = self.value, other.value
        if isinstance(a, float) and isinstance(b, float):
            both_nan = math.isnan(a) and math.isnan(b)
            return both_nan or a == b or abs(a - b) <= max(self.room, other.room)
        return type(a) is type(b) and a == b


ABSENT = Fact("absent", "data")
"""Stands for a fact that a rank does not have."""


class _Statement(NamedTuple):
    """What a rank sends to the others."""

    call: str
    failure: str | None
    facts: dict[str, Fact]


def world_size() -> int:
    """The number of ranks of the default process group; 1 where there is none.

    Example:
        >>> world_size()
        1
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()


def compares_ranks() -> bool:
    """Whether a call that begins here must compare the ranks.

    It must not inside a call that compares them itself: ``solve`` compares the ranks
    once, not at every projection and certificate within.

    Example:
        >>> compares_ranks()
        False
    """
    return not _INSIDE.get() and world_size() > 1


def is_dtensor(tensor: Tensor) -> bool:
    """Whether a tensor is a ``DTensor``, as FSDP2 and ``distribute_tensor`` make them.

    The module of ``DTensor`` takes seconds to import; unless it is, there is none.

    Example:
        >>> is_dtensor(torch.ones(2))
        False
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


@contextmanager
def agreeing(call: str) -> Iterator[dict[str, Fact]]:
    """Compare the facts that the block collects between the ranks, when it ends.

    Every rank takes part, also one whose block raises: its error is raised there, and
    the others report that it failed. So no rank waits for one that has stopped.

    Args:
        call: The name of the function that is called.

    Raises:
        InvalidProblemError: A fact differs between ranks, or another rank failed.
        RankError: Another rank has ended.

    Example:
        >>> with agreeing("oneproj.solve") as facts:
        ...     facts["seed"] = Fact("0", "settings")
    """
    facts: dict[str, Fact] = {}
    if not compares_ranks():
        yield facts
        return
    try:
        yield facts
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        try:
            _gather(call, _Statement(call, failure, {}))
        except RankError as lost:  # what failed here says more
            error.add_note(str(lost))
        raise
    _refuse_differences(_gather(call, _Statement(call, None, facts)))


@contextmanager
def staying_in_step(
    call: str, parameters: Sequence[Tensor]
) -> Iterator[dict[str, Fact]]:
    """Compare the parameters of all ranks when the block ends.

    Calls inside the block compare nothing. An error in the block is raised at once,
    without the other ranks: where they agree they raise it as well.

    Args:
        call: The name of the function that is called.
        parameters: That the block moves.

    Raises:
        InvalidProblemError: The ranks have drifted apart.
        RankError: Another rank has ended.

    Example:
        >>> with staying_in_step("oneproj.project", [torch.ones(2)]) as facts:
        ...     facts["updates"] = Fact("500", "end")
    """
    facts: dict[str, Fact] = {}
    if not compares_ranks():
        yield facts
        return
    before = _INSIDE.set(True)
    try:
        yield facts
    finally:
        _INSIDE.reset(before)
    facts["the parameters at the end"] = Fact(digest(parameters), "end")
    end = f"the end of {call}"
    _refuse_differences(_gather(end, _Statement(end, None, facts)))


def is_first_with(value: str) -> bool:
    """Whether no lower rank gives the same value; all ranks call this together.

    Example:
        >>> is_first_with("run.pt")
        True
    """
    if not compares_ranks():
        return True
    found = _gather("the first save of a checkpoint", value)
    return found.index(value) == distributed.get_rank()


def digest(vector: Sequence[Tensor]) -> str:
    """A hash of every bit of a vector, and of its shapes and dtypes.

    Example:
        >>> digest([torch.ones(2)]) == digest([torch.ones(2)])
        True
        >>> digest([torch.ones(2)]) == digest([torch.ones(2, 1)])
        False
    """
    found = hashlib.sha256()
    for tensor in vector:
        found.update(f"{tuple(tensor.shape)} {tensor.dtype} ".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]


def setting_facts(settings: Mapping[str, object]) -> dict[str, Fact]:
    """Settings as facts; of objects that are not plain, the type.

    Example:
        >>> setting_facts({"lr": 0.1, "base": torch.optim.SGD})["lr"].value
        '0.1'
    """
    facts = {}
    for name, value in ((name, plain(given)) for name, given in settings.items()):
        simple = value is None or isinstance(value, bool | int | float | str)
        kind = str(getattr(value, "__qualname__", type(value).__name__))
        facts[name] = Fact(repr(value) if simple else kind, "settings")
    return facts


def _gather(call: str, own: Sent) -> list[Sent]:
    """What every rank sends, by rank.

    Raises:
        RankError: Another rank does not answer.
    """
    found: list[Any] = [None] * world_size()
    try:
        distributed.all_gather_object(found, own)
    except RuntimeError as error:  # torch's own are of this class
        raise _lost_rank(call, len(found), error) from error
    return found


def _lost_rank(call: str, ranks: int, error: RuntimeError) -> RankError:
    """The error on a rank whose others do not answer; with two, the other is known."""
    own = distributed.get_rank()
    lost = f"rank {1 - own}" if ranks == 2 else "another rank"  # noqa: PLR2004 - a pair
    unknown = "" if ranks == 2 else " torch does not tell which one it was."  # noqa: PLR2004
    message = (
        f"At {call}, rank {own} of {ranks} got no answer from {lost}: its process has "
        f"ended, or it cannot be reached.{unknown} No answer can be trusted that the "
        "ranks did not compare, so this rank stops; its parameters are not checked "
        "against the others. Look at the output of the other ranks for the first "
        "error, and start all of them again: with checkpoint= they go on from the last "
        f"save. torch said: {str(error).splitlines()[0]}"
    )
    return RankError(message)


def _refuse_differences(statements: list[_Statement]) -> None:
    """Raise the same on every rank, from the same statements."""
    for rank, statement in enumerate(statements):
        if statement.failure is not None:
            message = (
                f"{statement.call} failed on rank {rank} of {len(statements)}, so no "
                f"rank goes on. There: {statement.failure}"
            )
            raise InvalidProblemError(message)
    calls = [statement.call for statement in statements]
    if len(set(calls)) > 1:
        told = ", ".join(f"{call} on rank {rank}" for rank, call in enumerate(calls))
        message = (
            f"The ranks of the process group are at different calls: {told}. Every "
            "rank has to make the same calls of oneproj in the same order, also those "
            "whose result only one rank uses."
        )
        raise InvalidProblemError(message)
    differences: dict[str, About] = {}
    for name in {name: None for statement in statements for name in statement.facts}:
        found = [statement.facts.get(name, ABSENT) for statement in statements]
        other = next(
            (k for k, fact in enumerate(found) if not found[0].agrees(fact)), 0
        )
        if other:
            values = f"{found[0].value} on rank 0, {found[other].value} on rank {other}"
            about = next(fact.about for fact in found if fact is not ABSENT)
            differences[f"{name} ({values})"] = about
    if differences:
        named = list(differences)[:MOST_NAMED]
        more = len(differences) - len(named)
        listed = "; ".join(named) + (f"; and {more} more" if more else "")
        advice = " ".join(
            ADVICE[k] for k in {differences[name]: None for name in named}
        )
        message = (
            f"At {calls[0]} the {len(statements)} ranks of the process group differ: "
            f"{listed}. {advice}"
        )
        raise InvalidProblemError(message)
