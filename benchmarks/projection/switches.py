"""Overrides of the projector's options, constants and functions, by name.

A switch is ``option=value`` for an argument of ``Cuts``, or ``module:name=value`` for
anything in a module, such as
``oneproj.projection.tolerances:TOLERANCES.stuck=20``. A value is a Python literal,
or ``module:name`` for a function to put in place of another.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from oneproj.errors import InvalidProblemError


@contextmanager
def overridden(switches: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Apply switches while the block runs; yields the options among them.

    A name is overridden in every loaded module of ``oneproj`` that imported it.

    Raises:
        InvalidProblemError: A switch has no value, or names nothing that exists.

    Example:
        >>> import oneproj.progress
        >>> with overridden(["oneproj.progress:is_notebook=None", "memory=5"]) as made:
        ...     oneproj.progress.is_notebook, made
        (None, {'memory': 5})
    """
    options: dict[str, Any] = {}
    undo: list[tuple[Any, str, Any]] = []
    try:
        for switch in switches:
            path, equals, text = switch.partition("=")
            if not equals or not path:
                _refuse(switch, "it has no value")
            if ":" in path:
                undo += _override(switch, path, _value(switch, text))
            else:
                options[path] = _value(switch, text)
        yield options
    finally:
        for owner, name, old in reversed(undo):
            object.__setattr__(owner, name, old)


def _override(switch: str, path: str, value: object) -> list[tuple[Any, str, Any]]:
    """Set a name, also where a dataclass is frozen; what to restore."""
    module, _, names = path.partition(":")
    *parents, name = names.split(".")
    owner: Any = _import(switch, module)
    for parent in parents:
        owner = _attribute(switch, owner, parent)
    old = _attribute(switch, owner, name)
    owners = [owner]
    if not parents:
        owners += [
            other
            for key, other in list(sys.modules.items())
            if key.partition(".")[0] in {"oneproj", "oneproj_paper"}
            and other is not owner
            and vars(other).get(name, dataclasses.MISSING) is old
        ]
    for one in owners:
        object.__setattr__(one, name, value)
    return [(one, name, old) for one in owners]


def _value(switch: str, text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    module, colon, name = text.partition(":")
    if not colon:
        _refuse(switch, "its value is neither a Python literal nor module:name")
    return _attribute(switch, _import(switch, module), name)


def _import(switch: str, module: str) -> object:
    try:
        return importlib.import_module(module)
    except ImportError:
        _refuse(switch, f"there is no module {module}")


def _attribute(switch: str, owner: object, name: str) -> object:
    try:
        return getattr(owner, name)
    except AttributeError:
        _refuse(switch, f"there is no {name}")


def _refuse(switch: str, why: str) -> NoReturn:
    message = (
        f"The switch {switch!r} cannot be set: {why}. Write option=value for an "
        "argument of Cuts, or module:name=value, as in "
        "oneproj.projection.tolerances:TOLERANCES.stuck=20."
    )
    raise InvalidProblemError(message)
