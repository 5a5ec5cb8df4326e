"""Functions are told apart by what they do, in every process alike."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from oneproj.training import fingerprints
from oneproj.training.fingerprints import fingerprint, name_of

RATE = 0.5


def scaled(k: int) -> float:
    return RATE * k


def by(factor: Any) -> Callable[[int], Any]:  # noqa: ANN401 - all that a closure holds
    return lambda k: k * factor


def inner(factor: float) -> Callable[[], Callable[[int], float]]:
    return lambda: lambda k: k * factor


def chosen(k: int, names: frozenset[str] = frozenset("abc")) -> bool:
    return str(k) in {"a", "b", "c", "d"} | names


def endless(k: int) -> int:
    return endless(k - 1)


class Maker:
    def make(self, k: int) -> int:
        return k


ALIKE: dict[str, Callable[[], object]] = {
    "function": lambda: scaled,
    "closure": lambda: by(3),
    "object in a closure": lambda: by([1, 2]),
    "inner": lambda: inner(0.5),
    "partial": lambda: functools.partial(scaled, k=2),
    "class": lambda: torch.optim.Adam,
    "method": lambda: Maker().make,
    "object": Maker,
    "recursive": lambda: endless,
    "set": lambda: chosen,
}


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE)
def test_what_is_made_alike_is_alike(make: Callable[[], object]) -> None:
    assert fingerprint(make()) == fingerprint(make())


DIFFERENT: dict[str, tuple[object, object]] = {
    "constant": (lambda k: 2 * k, lambda k: 3 * k),
    "operation": (lambda k: 2 * k, lambda k: 2 + k),
    "name": (lambda k: torch.sin(k), lambda k: torch.cos(k)),  # noqa: PLW0108 - the code counts
    "default": (lambda k=1: k, lambda k=2: k),
    "keyword": (lambda *, k=1: k, lambda *, k=2: k),
    "closure": (by(2.0), by(3.0)),
    "type in a closure": (by([1]), by({})),
    "inner closure": (inner(2.0), inner(3.0)),
    "inner code": (lambda: lambda k: k + 1, lambda: lambda k: k + 2),
    "partial": (functools.partial(scaled, 1), functools.partial(scaled, 2)),
    "keyword of a partial": (
        functools.partial(torch.optim.SGD, lr=1.0),
        functools.partial(torch.optim.SGD, lr=2.0),
    ),
    "function of a partial": (functools.partial(by, 1), functools.partial(inner, 1)),
    "class": (torch.optim.SGD, torch.optim.Adam),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_does_something_else_is_not(one: object, other: object) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_what_a_function_takes_from_its_module_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uses = lambda k: scaled(k)  # noqa: E731, PLW0108 - it calls another
    before = fingerprint(scaled), fingerprint(uses)
    monkeypatch.setitem(globals(), "RATE", 0.25)
    assert fingerprint(scaled) != before[0]
    assert fingerprint(uses) != before[1]


SOURCE = """
RATE = 0.5
def by(factor):
    return lambda k, *, m=2: k * factor if k in {"a", "b", "c", "d"} else RATE * m
def inner(factor):
    return lambda: lambda k: by(factor)(k)
DIGITS_OF = [fingerprint(f) for f in (by, by(2.0), inner((1, "x")), partial(by, 3))]
"""


def test_the_digits_are_the_same_in_another_process() -> None:
    written = Path(fingerprints.__file__).read_text(encoding="utf-8")
    command = [sys.executable, "-c", f"{written}{SOURCE}print(*DIGITS_OF)"]
    surroundings = os.environ | {"PYTHONHASHSEED": "7"}
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env=surroundings
    )
    place: dict[str, Any] = {"__name__": "__main__", "fingerprint": fingerprint}
    place["partial"] = functools.partial
    exec(SOURCE, place)  # noqa: S102 - from above
    assert run.stdout.split() == place["DIGITS_OF"]


def test_names() -> None:
    assert name_of(by(1)) == "by.<locals>.<lambda>"
    assert name_of(functools.partial(Maker)) == "partial of Maker"
    assert name_of(Maker()) == "Maker"


def test_a_part_of_a_method_without_a_module_has_digits_too() -> None:
    assert fingerprint(functools.partial(torch.Tensor.add, 1))


calls = 0


def counting() -> int:
    global calls  # noqa: PLW0603 - that is what is tested
    calls += 1
    return calls


def test_a_counter_that_a_function_keeps_does_not_change_it() -> None:
    before = fingerprint(counting)
    counting()
    assert fingerprint(counting) == before
