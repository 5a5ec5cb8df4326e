"""Every public class, function and method is explained, by itself or by its base."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import benchmarks
import oneproj
import oneproj_paper

MODULES = sorted(
    info.name
    for package in (oneproj, oneproj_paper, benchmarks)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


def unexplained(module: ModuleType) -> Iterator[str]:
    """The public names that a module defines and that nothing documents."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(value):
            if not vars(value).get("__doc__"):
                yield name
            for method, function in vars(value).items():
                if method.startswith("_") or not inspect.isroutine(function):
                    continue
                # getdoc follows the inheritance: an override needs no second text.
                if not inspect.getdoc(getattr(value, method)):
                    yield f"{name}.{method}"
        elif inspect.isfunction(value) and not value.__doc__:
            yield name


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_explained(name: str) -> None:
    assert list(unexplained(importlib.import_module(name))) == []


def test_what_is_unexplained_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sample")
    monkeypatch.setitem(sys.modules, "sample", module)
    source = """
class Base:
    "Explained."
    def told(self):
        "Explained."
    def untold(self):
        pass
class Override(Base):
    "Explained."
    def told(self):
        pass
class Silent(Base):
    pass
def function():
    pass
def _private():
    pass
"""
    exec(source, vars(module))  # noqa: S102
    assert list(unexplained(module)) == ["Base.untold", "Silent", "function"]
