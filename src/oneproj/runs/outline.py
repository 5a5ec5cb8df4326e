"""The outline of a run: what must be the same before its state is taken over, in words.

The settings that determine the updates, functions among them by their fingerprints;
what optimiser and scheduler began with; the shapes and dtypes of the parameters, the
constraints with their names, bounds and sizes, and the ball.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from oneproj.errors import CheckpointError
from oneproj.parameters import norm
from oneproj.problem import Problem
from oneproj.runs.fingerprints import PYTHON, fingerprint, name_of
from oneproj.tensor_schema import IMPLEMENTATION
from oneproj.terms.base import AbstractTerm
from oneproj.terms.constraints import Constraint

MOST_NAMED = 5
"""Differences that a message spells out."""
CODE = "code of"
"""Begins the name of what only the same version of Python can compare."""


def outline(
    problem: Problem, settings: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, str]:
    """What is to be compared, by name.

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
    return _of_problem(problem) | _flat(settings) | _steps(state)


def refuse_others(saved: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Raise with every difference, the first few in words.

    Raises:
        CheckpointError: They are of two runs.

    Example:
        >>> refuse_others({"seed": "0"}, {"seed": "0"})
    """
    names = [
        name
        for name in {**saved, **own}
        if saved.get(name) != own.get(name)
        and (name in saved.keys() & own.keys() or not name.startswith(CODE))
    ]
    if not names:
        return
    names.sort(key=lambda name: name.startswith(CODE))  # digits say least
    told = "; ".join(
        f"{name}: {saved.get(name, 'absent')} then, {own.get(name, 'absent')} now"
        for name in names[:MOST_NAMED]
    )
    more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    message = (
        f"The checkpoint is of another run: {told}{more}. A run resumes only as it "
        "began, or its answer would be that of neither. Repeat the call that wrote it, "
        "or start anew with another checkpoint path."
    )
    raise CheckpointError(message)


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Every setting in words, options by their own names."""
    words: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            words |= _flat(value)
        elif callable(value):  # two runs cannot share the object, but the function
            words[name] = name_of(value)
            words[f"{CODE} {name} in {PYTHON}"] = fingerprint(value)
        else:
            words[name] = repr(value)
    return words


def _steps(state: Mapping[str, Any]) -> dict[str, str]:
    """What optimisers and schedulers were made with, by their own states."""
    words: dict[str, str] = {}
    for name, value in state.items():
        if name == "param_groups":
            for i, group in enumerate(value):
                own = f"group {i} of the optimiser"
                told = {
                    k: v
                    for k, v in group.items()
                    if k not in ("params", *IMPLEMENTATION)
                }
                words |= {f"{k!r} in {own}": _plain(v) for k, v in told.items()}
        elif name == "scheduler" and value is not None:
            words |= {f"{k!r} in the scheduler": _plain(v) for k, v in value.items()}
        elif isinstance(value, Mapping):
            words |= _steps(value)
    return words


def _plain(value: object) -> str:
    """A value in words that are the same in every process."""
    if isinstance(value, Mapping):
        return str({str(key): _plain(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    plain = value is None or isinstance(value, int | float | str | Tensor)
    return repr(value) if plain else type(value).__name__


def _of_problem(problem: Problem) -> dict[str, str]:
    """What can be told of a problem without its data and functions."""
    words = {
        f"parameter {i}": f"{tuple(p.shape)}, {str(p.dtype).removeprefix('torch.')}"
        for i, p in enumerate(problem.parameters)
    }
    words |= {
        f"constraint {name!r}": _describe(c) for name, c in problem.constraints.items()
    }
    words["objective"] = _describe(problem.objective)
    words["model"] = type(problem.model).__name__
    words["order of the constraints"] = str(list(problem.constraints))
    words["radius"] = repr(problem.radius)
    center = problem.center
    words["center"] = "the origin" if center is None else f"of length {norm(center)!r}"
    return words


def _describe(term: AbstractTerm) -> str:
    size = "no data" if term.size is None else f"{term.size} examples"
    if isinstance(term, Constraint):
        return f"{size}, {'<=' if term.sense > 0 else '>='} {term.bound!r}"
    return f"{size}, {type(term).__name__}"
