"""The written reasons for numbers that fall outside: data, shown while they apply."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files

from oneproj.errors import InvalidDataError
from oneproj.report.published import RESULTS

Reasons = Mapping[tuple[str, str, str], str]
"""By experiment, method and quantity."""


def read_reasons(text: str | None = None) -> Reasons:
    r"""The reasons of a TOML text; of the file in this package if left out.

    Raises:
        InvalidDataError: An entry belongs to no number of the paper: it would never be
            shown.

    Example:
        >>> entry = '[abstention-nasa.one-projection]\nambiguity = "A reason."'
        >>> read_reasons(entry)
        {('abstention-nasa', 'one-projection', 'ambiguity'): 'A reason.'}
    """
    if text is None:
        text = files("oneproj.report").joinpath("reasons.toml").read_text("utf-8")
    found = {
        (experiment, method, quantity): reason
        for experiment, methods in tomllib.loads(text).items()
        for method, quantities in methods.items()
        for quantity, reason in quantities.items()
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
