"""Are the data files that are here the right ones, and undamaged?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oneproj.errors import InvalidProblemError
from oneproj_paper.data import (
    climsim_source,
    climsim_tropics,
    credit_source,
    power_tables,
)
from oneproj_paper.data.cached_files import problem_of
from oneproj_paper.data.climsim_groups import read_groups
from oneproj_paper.data.find import folders

CHECKS: dict[str, dict[str, Callable[[Path], object]]] = {
    credit_source.NAME: {credit_source.FILE: credit_source.read_credit},
    power_tables.NAME: {
        power_tables.ARTIFACT: power_tables.read_artifact,
        power_tables.PREPARED: power_tables.read_prepared,
    },
    climsim_source.NAME: {
        climsim_source.TABLE: read_groups,
        climsim_tropics.SAMPLE_FILE: climsim_tropics.read_sample,
        climsim_tropics.GRID_FILE: climsim_tropics.read_full_grid,
    },
}
"""For each data set, its files and the reader that refuses a wrong one."""


@dataclass(frozen=True)
class Finding:
    """What was found out about one file.

    Example:
        >>> Finding("credit", Path("cs-training.csv"), "it is truncated").ok
        False
    """

    name: str
    """The data set."""
    path: Path
    problem: str | None
    """What is wrong with the file; None if nothing is."""

    @property
    def ok(self) -> bool:
        """Whether the file is what it should be."""
        return self.problem is None


def verify(name: str | None = None) -> tuple[Finding, ...]:
    """Check every file that is here: its checksum, then what it holds.

    Checksums are known for what was downloaded or made here; the user's own files are
    judged by their rows and classes. Both folders are looked into, so that a damaged
    file is found even where another one hides it.

    Args:
        name: One data set; None checks all.

    Raises:
        InvalidProblemError: There is no such data set.

    Example:
        >>> verify("gaussian")
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: There is no data set 'gaussian'...
    """
    if name is not None and name not in CHECKS:
        message = f"There is no data set {name!r}. There are: {', '.join(CHECKS)}."
        raise InvalidProblemError(message)
    return tuple(
        Finding(data, folder / file, problem_of(folder / file, read))
        for data in ([name] if name else CHECKS)
        for folder in folders()
        for file, read in CHECKS[data].items()
        if (folder / file).is_file()
    )
