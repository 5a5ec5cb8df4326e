"""The written reasons for numbers that fall outside: data, shown while they apply."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from oneproj_paper.errors import InvalidDataError
from oneproj_paper.report.published import RESULTS


@dataclass(frozen=True)
class Reason:
    """Why a number falls outside.

    Attributes:
        text: The reason, in words.
        seeds: The seeds that it is about; None for any.

    Example:
        >>> Reason("These samples are separable.", (0, 1)).holds_for([1, 2])
        False
    """

    text: str
    seeds: tuple[int, ...] | None = None

    def holds_for(self, seeds: Collection[int]) -> bool:
        """Whether the reason is about exactly these runs."""
        return self.seeds is None or set(seeds) == set(self.seeds)


Reasons = Mapping[tuple[str, str, str], Reason]
"""By experiment, method and quantity."""


def read_reasons(text: str | None = None) -> Reasons:
    r"""The reasons of a TOML text; of the file in this package if left out.

    Raises:
        InvalidDataError: An entry belongs to no number of the paper: it would never be
            shown.

    Example:
        >>> entry = '[abstention-nasa.one-projection]\nambiguity = "A reason."'
        >>> read_reasons(entry)
        {('abstention-nasa', 'one-projection', 'ambiguity'):
            Reason(text='A reason.', seeds=None)}
    """
    if text is None:
        text = files("oneproj_paper.report").joinpath("reasons.toml").read_text("utf-8")
    found = {
        (experiment, method, quantity): _reason(entry)
        for experiment, methods in tomllib.loads(text).items()
        for method, quantities in methods.items()
        for quantity, entry in quantities.items()
    }
    known = {
        (experiment, method, quantity)
        for experiment, methods in RESULTS.items()
        for method, row in methods.items()
        for quantity in row.numbers
    }
    strange = [" / ".join(key) for key in found if key not in known]
    if strange:
        message = (
            f"No number of the paper is called {'; '.join(strange)}, so that reason "
            "would never be shown. Keys are experiment, method and quantity, such as "
            "abstention-nasa / one-projection / ambiguity."
        )
        raise InvalidDataError(message)
    return found


def _reason(entry: str | Mapping[str, Any]) -> Reason:
    if isinstance(entry, str):
        return Reason(entry)
    return Reason(entry["text"], tuple(entry["seeds"]))
