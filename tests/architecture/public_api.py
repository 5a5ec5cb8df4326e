"""The public API as text: every public name with its signature and members.

`make api` (or this file with --write) records it in public_api.txt, beside this file;
the test suite compares the two, so that no change of the API goes unnoticed.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import oneproj
import oneproj.integrations.lightning  # not by oneproj itself: these need extras
import oneproj.integrations.transformers
import oneproj.learn

RECORD = Path(__file__).with_suffix(".txt")


def promised(module: types.ModuleType) -> list[str]:
    """The names a module promises: what it lists, re-exports, or else defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    # `from a import X as X` is how type checkers recognise a re-export.
    imports = [
        alias
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    exported = [alias.name for alias in imports if alias.name == alias.asname]
    return sorted(exported) or sorted(
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and not name.startswith("_")
    )


def public_names(module: types.ModuleType, path: str) -> list[tuple[str, object]]:
    """What a module promises, under the path the user types, inner modules included."""
    found: list[tuple[str, object]] = []
    for name in promised(module):
        value = getattr(module, name)
        found.append((f"{path}.{name}", value))
        if inspect.ismodule(value):
            found += public_names(value, f"{path}.{name}")
    return found


def everything() -> list[tuple[str, object]]:
    """What the library promises, and what its extras do."""
    found = public_names(oneproj, "oneproj")
    integrations = oneproj.integrations
    for module in (integrations.lightning, integrations.transformers, oneproj.learn):
        name = module.__name__
        found += [(name, module), *public_names(module, name)]
    return found


def signature(value: object) -> str:
    """A signature without what differs between runs: the addresses of defaults."""
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # builtins and some C types have none
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def members(cls: type) -> Iterator[str]:
    """The public fields, properties and methods that a class has from this library.

    Those of its bases as well: what moves to one of them is promised as before.
    """
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
    if dataclasses.is_dataclass(cls):
        yield from (f"{field.name}: {field.type}" for field in dataclasses.fields(cls))
    ours = [base for base in reversed(cls.__mro__) if _is_ours(base)]
    defined = {name: value for base in ours for name, value in vars(base).items()}
    for name, value in sorted(defined.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"{name} (property)"
        elif isinstance(value, classmethod | staticmethod):
            yield f"{name}{signature(value.__func__)} ({type(value).__name__})"
        elif inspect.isfunction(value):
            yield f"{name}{signature(value)}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == oneproj.__name__


def lines() -> Iterator[str]:
    """The whole record, line by line."""
    for name, value in everything():
        if inspect.ismodule(value):
            yield f"module {name}"
        elif inspect.isclass(value):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            # What an Enum is called with is Python's business, and changes with it.
            call = "" if issubclass(value, enum.Enum) else signature(value)
            yield f"class {name}{call} < {bases}"
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
