"""Checkpoints: where a run is saved, what a file holds, and whose run it is.

The first line of a file names the format, the second is the SHA-256 of the rest, which
is what ``torch.save`` wrote. ``torch.load(weights_only=True)`` reads it, so that no
code in it can run. A file is replaced in one step: whenever the machine stops, there is
the checkpoint before or the one after.

A file is refused if another call or another problem wrote it. ``outline`` describes a
run in words: its settings, what its optimiser and scheduler began with, the parameters'
shapes, the constraints with their bounds and sizes. Functions count by their names;
the optimisers and schedulers that they make are compared by their states.
``sample_values`` evaluates every term on a few examples, always the same ones: the
values show whether data, losses and frozen parameters have changed, as far as these
examples depend on it. They are no full pass, and not counted.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import torch
from torch import Tensor

from oneproj.arguments import as_path, check_count, check_flag
from oneproj.errors import (
    CheckpointError,
    InvalidProblemError,
    OneprojError,
    deprecate,
    is_of_users_code,
)
from oneproj.files import in_words, replacing
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.projection.margins import MARGIN_POWER
from oneproj.schema import SchemaError, check_plain
from oneproj.vectors.arithmetic import norm, rounding_unit

VERSION = 13  # of the format; a state that is read in another way needs another
INTERVAL = "It is how many updates there are from one checkpoint to the next."
MAGIC = b"oneproj checkpoint, format "
SAMPLE = 256  # examples of each term that are compared: a few minibatches
MEASURED = ("'lr'", "'initial_lr'", "'prox_weight'", "'base_lrs'", "'_last_lr'")
"""Settings of optimisers and schedulers that follow from a measured step size."""
IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
"""Settings of a parameter group that may differ on another device."""
State = dict[str, Any]
Location: TypeAlias = str | PathLike[str]


@dataclass(frozen=True)
class Checkpoint:
    """Where ``solve`` saves a run, how often, and whether it goes on from there.

    Args:
        path: The file, replaced in one step.
        every: Updates between two saves; the run is also saved when its updates end.
        resume: Whether to go on from the file if it exists. Without, a file that
            exists is refused, never overwritten.

    Raises:
        InvalidProblemError: The path is not a path, or the interval not a count.

    Example:
        >>> Checkpoint("run.pt", every=500)
        Checkpoint(path='run.pt', every=500, resume=True)
    """

    path: Location
    every: int = 100
    resume: bool = True

    def __post_init__(self) -> None:
        """Check the values; ``solve`` opens the file."""
        as_path("path", self.path)
        check_flag("resume", self.resume, "It says whether to go on from the file.")
        object.__setattr__(self, "every", check_count("every", self.every, INTERVAL))


@dataclass(frozen=True)
class Files:
    """The files of one run: where it begins, and where it is saved.

    Attributes:
        source: The checkpoint to go on from; None to begin.
        target: The checkpoint to write; None for none.
        every: Updates between two of them.
    """

    source: Path | None = None
    target: Path | None = None
    every: int = 100

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint | Location | None,
        checkpoint_every: int | None,
        resume: Location | bool | None,  # noqa: FBT001 - an argument of ``solve``
    ) -> Files:
        """Read the arguments of ``solve``; the last two are deprecated.

        Raises:
            CheckpointError: There is nothing to resume from, or the file would be
                overwritten, or no file can have that name.

        Example:
            >>> Files.of(Checkpoint("run.pt", every=5), None, None).every
            5
        """
        old = checkpoint_every is not None or resume is not None
        new = "checkpoint=oneproj.Checkpoint(path, every=..., resume=...)"
        if old and isinstance(checkpoint, Checkpoint):
            message = (
                "checkpoint_every= and resume= cannot be given beside a "
                f"oneproj.Checkpoint, which has both: {new}."
            )
            raise InvalidProblemError(message)
        if checkpoint is None and checkpoint_every is not None:
            message = (
                f"checkpoint_every={checkpoint_every} has no effect without a file to "
                f"save to: pass {new}."
            )
            raise InvalidProblemError(message)
        every = 100 if checkpoint_every is None else checkpoint_every
        every = check_count("checkpoint_every", every, INTERVAL)
        if isinstance(checkpoint, Checkpoint):
            every, resume = checkpoint.every, checkpoint.resume
            checkpoint = checkpoint.path
        target = None if checkpoint is None else _target(checkpoint)
        if resume is True:
            if target is None:
                message = (
                    "resume=True goes on from the checkpoint of the same call, but "
                    "none is given. Pass checkpoint=oneproj.Checkpoint(path)."
                )
                raise CheckpointError(message)
            resume = target if target.exists() else None
        source = None
        if resume is not None and resume is not False:
            source = as_path("resume", resume, also=", True or None")
        if target is not None and target.exists() and target != source:
            message = (
                f"There is a checkpoint at {str(target)!r} already, and this run would "
                "overwrite it. Pass oneproj.Checkpoint(path, resume=True) to go on "
                "from it, or delete it, or choose another path."
            )
            raise CheckpointError(message)
        if old:
            deprecate("solve(checkpoint_every=, resume=)", new)
        return cls(source, target, every)


def write_checkpoint(path: Path, state: State) -> None:
    """Write a checkpoint, in one step.

    Raises:
        CheckpointError: The state holds an object that could not be read back safely.
        OSError: The folder cannot be written, or the disk is full.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_checkpoint(Path(folder, "run.pt"), {"update": 3})
        ...     read_checkpoint(Path(folder, "run.pt"))
        {'update': 3}
    """
    try:
        check_plain(state, "the run")
    except SchemaError as error:
        message = (
            f"The state of this run cannot be saved: {error}, and a checkpoint holds "
            "numbers, strings, tensors and containers of them only, so that loading "
            "one runs no code. An optimiser or scheduler of your own can say what to "
            "save in state_dict()."
        )
        raise CheckpointError(message) from error
    first = MAGIC + str(VERSION).encode() + b"\n"
    with replacing(path) as draft, draft.open("w+b") as stream:
        stream.write(first + b" " * 64 + b"\n")
        start = stream.tell()
        try:
            torch.save(state, stream)
        except RuntimeError as error:  # torch's own words hide what the disk said
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
        stream.seek(start)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(len(first))
        stream.write(digest.encode())


@contextmanager
def resumed_from(source: Path | None) -> Iterator[None]:
    """Blame the checkpoint for an error that hardly anything else in a run can cause.

    What a new run has is compared when a checkpoint is read. The rest, such as the
    memory of an optimiser, is not known before it is used: if that fails, in the
    library's own code, the contents were changed. Neither code of the user's may be
    involved, nor the system, workers of a loader, or torch's detection of anomalies.

    Args:
        source: What the run was resumed from; None for a new run, of which such an
            error is left alone.

    Raises:
        CheckpointError: In place of it.

    Example:
        >>> with resumed_from(None):
        ...     raise KeyError("exp_avg")
        Traceback (most recent call last):
        KeyError: 'exp_avg'
    """
    try:
        yield
    except OneprojError:
        raise
    except Exception as error:
        system = isinstance(error, OSError | MemoryError | torch.OutOfMemoryError)
        elsewhere = system or torch.is_anomaly_enabled() or "DataLoader" in str(error)
        if source is None or elsewhere or is_of_users_code(error):
            raise
        message = (
            f"The run could not go on from {source}: {error!r} in the library's own "
            "code. The checkpoint is complete, but its contents are not what a run "
            "saves: something else wrote it, or it was changed. Resume from another "
            "one, or start anew."
        )
        raise CheckpointError(message) from error


def read_checkpoint(path: Path) -> State:
    """Read a checkpoint; only a complete one, of this format.

    Raises:
        CheckpointError: There is none, or it is truncated, damaged or something else.
    """
    if not path.is_file():
        message = (
            f"There is no checkpoint at {str(path)!r} to resume from. Check the path, "
            "or start a run with checkpoint=oneproj.Checkpoint(path), which begins "
            "where there is no checkpoint yet."
        )
        raise CheckpointError(message)
    name = f"The checkpoint {str(path)!r}"
    try:
        with path.open("rb") as stream:
            _check_version(name, stream.readline(len(MAGIC) + 20))
            noted = stream.read(65).rstrip(b"\n").decode(errors="replace")
            start = stream.tell()
            complete = hashlib.file_digest(stream, "sha256").hexdigest() == noted
            stream.seek(start)
            if complete:
                return _load(name, stream)
    except OSError as error:
        message = f"{name} cannot be read: {in_words(error)}. Nothing was loaded."
        raise CheckpointError(message) from error
    message = (
        f"{name} is truncated or damaged: its contents do not have the checksum that "
        "was noted when it was written. Nothing was loaded. Checkpoints are replaced "
        "in one step, so this happened afterwards, in a copy for example: take another "
        "copy, or delete it and start anew."
    )
    raise CheckpointError(message)


def _load(name: str, stream: BinaryIO) -> State:
    try:
        state = torch.load(stream, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of any kind
        message = (
            f"{name} is complete, but torch {torch.__version__} cannot read it "
            f"({type(error).__name__}). Use the version that wrote it, or delete it "
            "and start anew."
        )
        raise CheckpointError(message) from error
    return state if isinstance(state, dict) else {}


def cannot_write(path: Path, error: OSError | ValueError) -> CheckpointError:
    """The error for a run that cannot be saved from the beginning."""
    message = (
        f"The checkpoint {str(path)!r} cannot be written: {in_words(error)}. No update "
        "was made, since a stop would lose it. Choose a file in a folder that you can "
        "write to, on a disk with room, or leave out checkpoint=."
    )
    return CheckpointError(message)


def written_by_another(path: Path) -> CheckpointError:
    """The error for a run whose checkpoint another process is writing."""
    message = (
        f"The checkpoint {str(path)!r} is being written by another process, whose run "
        "has not ended: two runs would overwrite each other's updates. No update was "
        "made. Wait for that run, or stop it and go on from its file, or choose "
        "another path."
    )
    return CheckpointError(message)


def _target(location: Location) -> Path:
    """The file to write: not a folder."""
    path = as_path("checkpoint", location, also=", a oneproj.Checkpoint or None")
    try:
        folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
    if folder:
        message = (
            f"The checkpoint {str(path)!r} is a folder, but one run is one file, "
            "replaced as it goes. Name a file in it: "
            f"{str(path / 'run.pt')!r}."
        )
        raise CheckpointError(message)
    return path


def _check_version(name: str, line: bytes) -> None:
    if not (line.startswith(MAGIC) and line.endswith(b"\n")):
        message = (
            f"{name} is not a checkpoint of this library, or its first bytes are lost. "
            "Pass the path that was given to solve(checkpoint=...)."
        )
        raise CheckpointError(message)
    found = line.removeprefix(MAGIC).removesuffix(b"\n").decode(errors="replace")
    if found != str(VERSION):
        message = (
            f"{name} has format {found}, this version of the library reads format "
            f"{VERSION}. Finish the run with the version that began it, or delete the "
            "file and start anew."
        )
        raise CheckpointError(message)


def name_of(function: object) -> str:
    """The name of a function or a class; of another object, that of its class.

    Example:
        >>> name_of(max), name_of(partial(max, 3))
        ('max', 'partial of max')
    """
    if isinstance(function, partial):
        return f"partial of {name_of(function.func)}"
    return str(getattr(function, "__qualname__", type(function).__name__))


def outline(
    problem: Problem, settings: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, str]:
    """What is compared before a run goes on, by name.

    Args:
        problem: That is solved.
        settings: By name; options may be a mapping among them.
        state: Of the method, as it begins.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> words = outline(problem, {"seed": 0}, {})
        >>> words["parameter 0"], words["seed"]
        ('(2,), float32', '0')
    """
    center = problem.center
    words = {
        f"parameter {i}": f"{tuple(p.shape)}, {str(p.dtype).removeprefix('torch.')}"
        for i, p in enumerate(problem.parameters)
    }
    constraints = problem.constraints.items()
    words |= {f"constraint {name!r}": _describe(c) for name, c in constraints}
    words |= {
        "objective": _describe(problem.objective),
        "model": type(problem.model).__name__,
        "order of the constraints": str(list(problem.constraints)),
        "radius": repr(problem.radius),
        "center": "the origin" if center is None else f"of length {norm(center)!r}",
    }
    steps, options = _steps(state), settings.get("options")
    if options is not None and options.get("lr") is None:
        # The step size was measured at the start, which a resumed run does not see.
        steps = {k: v for k, v in steps.items() if not k.startswith(MEASURED)}
    chosen = {k: v for k, v in settings.items() if k != "options"} | dict(options or {})
    return words | {name: _text(value) for name, value in chosen.items()} | steps


def refuse_others(saved: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raise with every difference, the first five in words.

    Raises:
        CheckpointError: They are of two runs.

    Example:
        >>> refuse_others({"seed": "0"}, {"seed": "0"})
    """
    names = [name for name in {**saved, **new} if saved.get(name) != new.get(name)]
    if not names:
        return
    differences = [
        f"{name}: {saved.get(name, 'absent')} then, {new.get(name, 'absent')} now"
        for name in names[:5]
    ]
    if len(names) > len(differences):
        differences.append(f"and {len(names) - len(differences)} more")
    message = (
        f"The checkpoint is of another run: {'; '.join(differences)}. A run resumes "
        "only as it began, or its answer would be that of neither (the step sizes, "
        "for one, are planned for all updates). Repeat the call "
        "that wrote it, or start anew with another checkpoint path."
    )
    raise CheckpointError(message)


def _steps(state: Mapping[str, Any]) -> dict[str, str]:
    """What optimisers and schedulers were made with, by their own states."""
    words: dict[str, str] = {}
    for name, value in state.items():
        parts: dict[str, Mapping[str, Any]] = {}
        if name == "param_groups":
            parts = {f"group {i} of the optimiser": g for i, g in enumerate(value)}
        elif name == "scheduler" and value is not None:
            parts = {"the scheduler": value}
        elif isinstance(value, Mapping):
            words |= _steps(value)
        for owner, part in parts.items():
            for key, item in part.items():
                if key not in ("params", *IMPLEMENTATION):
                    words[f"{key!r} in {owner}"] = _text(item)
    return words


def _text(value: object) -> str:
    """A value as text that is the same in every process."""
    if isinstance(value, Mapping):
        items = (f"{key!r}: {_text(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    plain = value is None or isinstance(value, int | float | str | Tensor)
    return repr(value) if plain or is_dataclass(value) else name_of(value)


def _describe(term: AbstractTerm) -> str:
    size = "no data" if term.size is None else f"{term.size} examples"
    if isinstance(term, Constraint):
        return f"{size}, {'<=' if term.sense > 0 else '>='} {term.bound!r}"
    return f"{size}, {type(term).__name__}"


def sample_values(problem: Problem) -> dict[str, float]:
    """The value of every term on its sample, by the term's name.

    Example:
        >>> import oneproj
        >>> x, w = torch.arange(3.0), torch.ones(1, requires_grad=True)
        >>> mean = oneproj.mean(lambda batch: w * batch, data=x)
        >>> sample_values(oneproj.Problem(w, mean, {"cap": mean <= 5.0}))
        {'objective': 1.0, 'cap': -4.0}
    """
    terms = problem.terms
    return {term.name: _value(term) for term in terms}


def check_sample(problem: Problem, saved: Mapping[str, float]) -> None:
    """Compare the values with those that were saved at the same point.

    Terms that are random in a way that cannot be repeated are not compared.

    Raises:
        CheckpointError: They differ by more than rounding; the message names the term.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> check_sample(problem, {"objective": 1.0})
    """
    eps = rounding_unit(problem.parameters)
    for term in problem.terms:
        then, now = saved[term.name], _value(term)
        # As much as a projector's margin: another number of threads changes less.
        room = eps**MARGIN_POWER * (term.scale() + abs(then))
        if _agree(then, now, room) or not _agree(_value(term), now, room):
            continue
        message = (
            f"The data or the function of {term.name!r} has changed since the "
            "checkpoint was written: on the same examples, at the same parameters, it "
            f"was {then!r} then and is {now!r} now. A run resumes only with what it "
            "began with, or its answer would be that of neither. Nothing was loaded. "
            "Bring back the data, its order, its preprocessing, the loss and the "
            "frozen parameters, or start anew with another checkpoint path."
        )
        raise CheckpointError(message)


@torch.no_grad()
def _value(term: AbstractTerm) -> float:
    indices = None
    if term.size is not None:
        count = min(SAMPLE, term.size)
        indices = torch.arange(count, device="cpu") * term.size // count
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices), evaluating(term.model):
        torch.default_generator.manual_seed(0)  # noise is the same each time
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(0)
        return float(term.batch_value(indices))


def _agree(a: float, b: float, room: float) -> bool:
    """Whether two values are the same up to rounding; what is not finite, exactly."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= room
    return repr(a) == repr(b)
