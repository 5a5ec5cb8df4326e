"""What a function does, in a few digits: to tell tomorrow whether it is still the same.

Two processes cannot share a function, but what it is compiled from. The digits stand
for its instructions and constants, its defaults, and the numbers and strings that it
takes from around it, together with the functions it is made of. Objects that it uses
count by their types only, and what it reads from a file or a list does not count.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

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
