"""What the experiments need, and what of it is on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from oneproj_paper.data import (
    climsim_source,
    climsim_tropics,
    credit_source,
    power_tables,
)
from oneproj_paper.data.find import locate


class Availability(Enum):
    """What a loader would return now; the value is the message.

    Example:
        >>> Availability.STAND_IN.value
        'stand-in'
    """

    READY = "ready"
    REBUILT = "rebuilt from the source"
    STAND_IN = "stand-in"
    MISSING = "missing"


@dataclass(frozen=True)
class Entry:
    """One data set: what it is, who needs it, and the state it is in here.

    Example:
        >>> [entry.name for entry in catalogue()]
        ['credit', 'nasa_power', 'climsim']
    """

    name: str
    what: str
    experiments: tuple[str, ...]
    source: str
    download: str
    """What ``oneproj-paper data prepare`` downloads, and whether by itself."""
    status: Availability
    paths: tuple[Path, ...]
    """The files that a loader would read; empty if some are missing."""
    size: int
    """Bytes of these files."""


@dataclass(frozen=True)
class _Choice:
    """Files that together serve a loader, and what they are."""

    files: tuple[str, ...]
    status: Availability


CHOICES = {
    credit_source.NAME: (_Choice((credit_source.FILE,), Availability.READY),),
    power_tables.NAME: (
        _Choice((power_tables.ARTIFACT,), Availability.READY),
        _Choice((power_tables.PREPARED,), Availability.STAND_IN),
    ),
    climsim_source.NAME: (
        _Choice((climsim_source.TABLE,), Availability.REBUILT),
        _Choice(
            (climsim_tropics.SAMPLE_FILE, climsim_tropics.GRID_FILE),
            Availability.STAND_IN,
        ),
    ),
}
"""For each data set, what its loader takes, best first."""

TEXTS = {
    credit_source.NAME: (
        "Give Me Some Credit: 150,000 borrowers",
        ("abstention-credit",),
        "OpenML 45577",
        "10 MB, by itself when it is needed",
    ),
    power_tables.NAME: (
        "NASA POWER: daily weather at 9 points",
        ("abstention-nasa",),
        "NASA POWER daily API",
        "10 MB, on request: a stand-in",
    ),
    climsim_source.NAME: (
        "ClimSim: columns of a climate model",
        ("transfer-climsim", "abstention-climsim"),
        "Hugging Face, LEAP",
        "11.6 GB, on request",
    ),
}


def catalogue() -> tuple[Entry, ...]:
    """Every data set that needs a file, and whether it is here.

    The two Gaussian experiments are drawn from a seed and need none.

    Example:
        >>> {entry.experiments for entry in catalogue()} >= {("abstention-credit",)}
        True
    """
    return tuple(_entry(name) for name in CHOICES)


def _entry(name: str) -> Entry:
    status, paths = Availability.MISSING, tuple[Path, ...]()
    for choice in CHOICES[name]:
        found = [locate(file) for file in choice.files]
        if None not in found:
            status, paths = choice.status, tuple(path for path in found if path)
            break
    size = sum(path.stat().st_size for path in paths)
    return Entry(name, *TEXTS[name], status, paths, size)
