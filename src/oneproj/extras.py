"""Packages that only an extra installs, imported where they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from oneproj.errors import OneprojError


def require(module: str, extra: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a module, or say which extra brings it.

    Raises:
        OneprojError: It is not installed.

    Example:
        >>> require("json", "experiments").loads("1")
        1
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"This needs {module!r}, which is not installed. Try: pip install "
            f"oneproj[{extra}]"
        )
        raise OneprojError(message) from error
