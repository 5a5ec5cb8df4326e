"""The experiments, theorems and figures of the paper, made again with ``oneproj``."""

import importlib.metadata
import platform


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
