"""The public API as text: every public name with its signature and members.

`make api` (or this file with --write) records it in public_api.txt, beside this file;
the test suite compares the two, so that no change of the API goes unnoticed.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import oneproj

RECORD = Path(__file__).with_suffix(".txt")


def public_names(module: types.ModuleType) -> list[tuple[str, object]]:
    """The names a module promises, qualified, modules inside it included."""
    found: list[tuple[str, object]] = []
    for name in sorted(module.__all__):
        value = getattr(module, name)
        found.append((f"{module.__name__}.{name}", value))
        if inspect.ismodule(value):
            found += public_names(value)
    return found


def signature(value: object) -> str:
    """A signature without what differs between runs: the addresses of defaults."""
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # builtins and some C types have none
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def members(cls: type) -> Iterator[str]:
    """The public fields, properties and methods that a class itself defines."""
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
    if dataclasses.is_dataclass(cls):
        yield from (f"{field.name}: {field.type}" for field in dataclasses.fields(cls))
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"{name} (property)"
        elif isinstance(value, classmethod | staticmethod):
            yield f"{name}{signature(value.__func__)} ({type(value).__name__})"
        elif inspect.isfunction(value):
            yield f"{name}{signature(value)}"


def lines() -> Iterator[str]:
    """The whole record, line by line."""
    for name, value in public_names(oneproj):
        if inspect.ismodule(value):
            yield f"module {name}"
        elif inspect.isclass(value):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            yield f"class {name}{signature(value)} < {bases}"
            yield from (f"    {member}" for member in members(value))
        elif callable(value):
            yield f"function {name}{signature(value)}"
        else:
            yield f"constant {name}: {type(value).__name__}"


if __name__ == "__main__":
    record = "".join(f"{line}\n" for line in lines())
    if "--write" in sys.argv:
        RECORD.write_text(record)
    else:
        sys.stdout.write(record)
