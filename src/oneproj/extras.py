"""Packages: those that only an extra installs, and the versions of any."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from typing import Any

from oneproj.errors import OneprojError


def require(module: str, extra: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a module, or say which extra brings it.

    Raises:
        OneprojError: It is not installed.

    Example:
        >>> require("json", "progress").loads("1")
        1
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"This needs {module!r}, which is not installed. Try: {install(extra)}"
        )
        raise OneprojError(message) from error


def install(extra: str) -> str:
    """The command that brings an extra.

    Example:
        >>> install("progress")
        'pip install "oneproj[progress]" (in a clone: ".[progress]")'
    """
    return f'pip install "oneproj[{extra}]" (in a clone: ".[{extra}]")'


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of packages, for what a record depends on.

    Example:
        >>> list(versions("numpy", "torch"))
        ['python', 'numpy', 'torch']
    """
    return {"python": platform.python_version()} | {p: _version(p) for p in packages}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"  # run from the sources
