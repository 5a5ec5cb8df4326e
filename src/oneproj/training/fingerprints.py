"""What a function does, in a few digits: to tell tomorrow whether it is still the same.

Two processes cannot share a function, but what it is compiled from. The digits stand
for its instructions and constants, its defaults, and the numbers and strings that it
takes from around it, together with the functions it is made of. Objects that it uses
count by their types only, and what it reads from a file or a list does not count.

The outline of a run: what must be the same before its state is taken over, in words.

The settings that determine the updates, functions among them by their fingerprints;
what optimiser and scheduler began with; the shapes and dtypes of the parameters, the
constraints with their names, bounds and sizes, and the ball.

A fingerprint of what a run computes with: every term, on a sample of its data.

The sample is the same examples each time, spread evenly over the data, and the values
are those at the point that the parameters hold. Saved with a run they tell, when it is
to go on, whether data, losses and frozen parameters are still what they were: not all
of the data is looked at, but data that was shuffled, drawn, scaled or preprocessed in
another way gives other values. It is no full pass and no constraint gradient, so the
counts of a run do not have it.
"""

from __future__ import annotations

import dis
import hashlib
import math
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from oneproj.errors import CheckpointError
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.projection.margins import MARGIN_POWER
from oneproj.tensor_schema import IMPLEMENTATION
from oneproj.vectors.arithmetic import norm, rounding_unit

DIGITS = 12
"""Of the fingerprint."""
PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"
"""Which compiles to instructions of its own."""
SIMPLE = (bool, int, float, complex, str, bytes, type(None), type(...))
"""Values that say all that they are."""


def name_of(function: object) -> str:
    """How a function or a class is called, or what it is an object of.

    Example:
        >>> name_of(max), name_of(partial(max, 3))
        ('max', 'partial of max')
    """
    if isinstance(function, partial):
        return f"partial of {name_of(function.func)}"
    return str(getattr(function, "__qualname__", type(function).__name__))


def fingerprint(function: object) -> str:
    """The digits of a function; the same in every process of one version of Python.

    Example:
        >>> def power(p): return lambda x: x ** p
        >>> fingerprint(power(2)) == fingerprint(power(2)) != fingerprint(power(3))
        True
    """
    module = getattr(function, "__module__", None)
    words = "\n".join(_words(function, module, set()))
    return hashlib.sha256(words.encode()).hexdigest()[:DIGITS]


def _words(value: Any, module: str | None, seen: set[int]) -> Iterator[str]:  # noqa: ANN401 - anything
    if isinstance(value, SIMPLE):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, tuple):
        for item in value:
            yield from _words(item, module, seen)
    elif isinstance(value, frozenset):  # its order is another in every process
        yield from sorted(word for item in value for word in _words(item, module, seen))
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        yield " ".join(value.co_names)
        yield from _words(value.co_consts, module, seen)
    elif isinstance(value, partial):
        parts = (value.func, value.args, *sorted(value.keywords.items()))
        yield from _words(parts, getattr(value.func, "__module__", None), seen)
    elif isinstance(value, MethodType):
        yield from _words(value.__func__, module, seen)
    elif isinstance(value, FunctionType) and id(value) not in seen:
        seen.add(id(value))
        yield from _function(value, module, seen)
    else:
        yield name_of(value)


def _function(
    function: FunctionType, module: str | None, seen: set[int]
) -> Iterator[str]:
    if function.__module__ != module:  # a library's: it has a version of its own
        yield name_of(function)
        return
    around = _globals(function.__code__, function.__globals__)
    for name, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # nothing in it yet
            around[name] = None
    parts = (function.__code__, function.__defaults__)
    named = (*(function.__kwdefaults__ or {}).items(), *around.items())
    yield from _words((*parts, *sorted(named, key=lambda pair: pair[0])), module, seen)


def _globals(code: CodeType, place: dict[str, Any]) -> dict[str, Any]:
    """What is read from the module, by this code and by the functions inside it."""
    found = {
        step.argval: place[step.argval]
        for step in dis.get_instructions(code)
        if step.opname == "LOAD_GLOBAL" and step.argval in place
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _globals(inner, place)
    for step in dis.get_instructions(code):
        if step.opname == "STORE_GLOBAL":  # a counter, which is another at every call
            found.pop(step.argval, None)
    return {name: value for name, value in found.items() if not name.startswith("__")}


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


SAMPLE = 256
"""Examples of each term: the work of a few minibatches, at every checkpoint."""
NOISE = 0
"""Seeds what a term draws from torch's global generator, which is put back."""


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
            f"The data or the function of {term.name!r} is not what it was when the "
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
        torch.default_generator.manual_seed(NOISE)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(NOISE)
        return float(term.batch_value(indices))


def _agree(a: float, b: float, room: float) -> bool:
    """Whether two values are the same up to rounding; what is not finite, exactly."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= room
    return repr(a) == repr(b)
