"""Is this the problem and the call that a checkpoint was written by?

``outline`` describes a run in words: its settings, what its optimiser and scheduler
began with, the parameters' shapes, the constraints with their bounds and sizes.
Functions count by their names; what optimisers and schedulers that they make were made
with is compared by their states.

``sample_values`` evaluates every term on a few examples, always the same ones. Saved
with a run, the values tell whether data, losses and frozen parameters are unchanged, as
far as these examples show it. They are no full pass, and not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oneproj.errors import CheckpointError
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.projection.margins import MARGIN_POWER
from oneproj.schema import IMPLEMENTATION
from oneproj.vectors.arithmetic import norm, rounding_unit

SAMPLE = 256  # examples of each term that are compared: a few minibatches


def name_of(function: object) -> str:
    """How a function or a class is called, or what it is an object of.

    Example:
        >>> name_of(max), name_of(partial(max, 3))
        ('max', 'partial of max')
    """
    if isinstance(function, partial):
        return f"partial of {name_of(function.func)}"
    return str(getattr(function, "__qualname__", type(function).__name__))


MEASURED = ("'lr'", "'initial_lr'", "'prox_weight'", "'base_lrs'", "'_last_lr'")
"""Settings of optimisers and schedulers that follow from a measured step size."""


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
    steps = _steps(state)
    options = settings.get("options")
    if isinstance(options, Mapping) and options.get("lr") is None:
        # The step size was measured at the start, which a resumed run does not see.
        steps = {k: v for k, v in steps.items() if not k.startswith(MEASURED)}
    return words | _settings(settings) | steps


def refuse_others(saved: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Raise with every difference, the first five in words.

    Raises:
        CheckpointError: They are of two runs.

    Example:
        >>> refuse_others({"seed": "0"}, {"seed": "0"})
    """
    names = [name for name in {**saved, **own} if saved.get(name) != own.get(name)]
    if not names:
        return
    differences = [
        f"{name}: {saved.get(name, 'absent')} then, {own.get(name, 'absent')} now"
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


def _settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Every setting in words, options by their own names."""
    words: dict[str, str] = {}
    for name, value in settings.items():
        if name == "defaults":  # whose names are those of settings, in part
            words[name] = repr(value)
        elif isinstance(value, Mapping):
            words |= _settings(value)
        elif callable(value):  # two runs cannot share the object, but the function
            words[name] = name_of(value)
        else:
            words[name] = repr(value)
    return words


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
                    words[f"{key!r} in {owner}"] = _plain(item)
    return words


def _plain(value: object) -> str:
    """A value in words that are the same in every process."""
    if isinstance(value, Mapping):
        return str({str(key): _plain(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    plain = value is None or isinstance(value, int | float | str | Tensor)
    return repr(value) if plain else type(value).__name__


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
    terms = (problem.objective, *problem.constraints.values())
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
    for term in (problem.objective, *problem.constraints.values()):
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
