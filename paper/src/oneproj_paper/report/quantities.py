"""The columns of the paper's tables: what each is called and where a record has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.spread import Spread, spread
from oneproj_paper.report.published import Row

PERCENT = 100.0
MOST_TEXTS = 2
"""More would not fit a cell."""
SOURCE = "source risk"
"""The constraint of the transfer experiments."""


@dataclass(frozen=True)
class Quantity:
    """A number that runs differ in, with its mean and standard deviation.

    Example:
        >>> RUNTIME.heading, RUNTIME.judged
        ('Runtime (s)', False)
    """

    key: str
    """As ``published`` has it."""
    heading: str
    digits: int
    read: Callable[[Record], float]
    judged: bool = True
    """Whether it should agree with the paper's; runtimes are of another machine."""

    def spread(self, records: Sequence[Record]) -> Spread | None:
        """The mean and standard deviation over the runs; None without any."""
        return spread([float(self.read(r)) for r in records]) if records else None


def in_common(texts: Iterable[str]) -> str:
    """One text for all runs: both of two, or how many they are.

    Example:
        >>> in_common(["500", "500"]), in_common(["2", "1"]), in_common("abc")
        ('500', '1 or 2', '3 different')
    """
    found = sorted(set(texts))
    return " or ".join(found) if len(found) <= MOST_TEXTS else f"{len(found)} different"


@dataclass(frozen=True)
class Fact:
    """A setting that runs share, as text beside the paper's text.

    Example:
        >>> UPDATES.heading
        'Updates'
    """

    key: str
    heading: str
    read: Callable[[Record], str]
    published: Callable[[Row], str]

    def text(self, records: Sequence[Record]) -> str:
        """What the runs have in common."""
        return in_common(self.read(record) for record in records)


def _test(name: str, scale: float = 1.0) -> Callable[[Record], float]:
    return lambda record: scale * float(record.metrics["test"][name])


def _thresholds(record: Record) -> str:
    thresholds = record.settings.get("thresholds") or ()
    return f"({', '.join(f'{float(beta):.3f}' for beta in thresholds)})"


RUNTIME = Quantity("runtime", "Runtime (s)", 2, lambda r: r.runtime, judged=False)
TARGET_ERROR = Quantity("target error", "Target error (%)", 2, _test("error", PERCENT))
TARGET_RISK = Quantity("target risk", "Target logistic risk", 3, _test("risk"))
SOURCE_RISK = Quantity(
    SOURCE, "Final source risk", 5, lambda record: record.risks[SOURCE]
)
CLASS_0 = Quantity(
    "class 0 error", "Class 0 error (%)", 2, _test("class_0_error", PERCENT)
)
CLASS_1 = Quantity(
    "class 1 error", "Class 1 error (%)", 2, _test("class_1_error", PERCENT)
)
AMBIGUITY = Quantity("ambiguity", "Ambiguity (%)", 2, _test("ambiguity", PERCENT))
ACCURACY = Quantity(
    "decided accuracy", "Decided accuracy (%)", 2, _test("decided_accuracy", PERCENT)
)
UPDATES = Fact(
    *("updates", "Updates", lambda r: f"{r.planned_updates:,}", lambda p: p.updates)
)
SOURCE_CAP = Fact(
    "source cap",
    "Source-risk cap",
    lambda record: f"{float(record.settings['caps'][SOURCE]):.5f}",
    lambda published: published.source_cap,
)
THRESHOLDS = Fact(
    *("thresholds", "Thresholds (\u03b2\u2080, \u03b2\u2081)", _thresholds),
    lambda published: published.thresholds,
)
