"""The paper's ClimSim sample, rebuilt from the hub's files: groups 26 and 27, 8 years.

Four consecutive locations are a group: 104 to 107 (group 26) are the target, 108 to
111 (group 27) the source. The periods are 60/20/20 of the days; dry rows leave
afterwards, so that the parts are a little uneven, as the paper's are.

Abstention takes daily means of the target group: 4 locations and 2,920 days are
11,680 rows, of which the paper's 11,373 would be the wet ones. Transfer takes the time
steps themselves: days alone would not have the 950 heavy source rows it needs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from oneproj_paper.data.climsim_calendar import date_of_stamp
from oneproj_paper.data.climsim_labels import Labelled, Regions, Sizes, heavy
from oneproj_paper.data.climsim_rows import (
    GROUP,
    LOCATIONS,
    SOURCE_GROUP,
    TARGET_GROUP,
    Rows,
    daily,
    read_rows,
)
from oneproj_paper.data.splits import Parts, chronological_split
from oneproj_paper.errors import InvalidDataError

SIZES = Sizes(source=950, train=100, validation=200, test=400)
"""The paper's."""
PARTS = (6_844, 2_257, 2_272)
CLASSES = (10_825, 548)
"""The paper's counts of the abstention sample."""


def read_groups(path: Path) -> Rows:
    """All rows of both groups, as ``prepare_climsim`` has written them.

    Raises:
        InvalidDataError: There are rows of other locations, or none of some.
    """
    rows = read_rows(path)
    found = set(np.unique(rows.location).tolist())
    if found != set(LOCATIONS.tolist()) or not np.isfinite(rows.x).all():
        message = (
            f"{path} should hold finite states of the locations {LOCATIONS[0]} to "
            f"{LOCATIONS[-1]}. It may be damaged: run `oneproj-paper data prepare "
            "climsim --refresh`."
        )
        raise InvalidDataError(message)
    return rows


def daily_rain(rows: Rows) -> Labelled:
    """Daily means of the target group, labelled, without dry days."""
    days = daily(rows.where(rows.location // GROUP == TARGET_GROUP))
    parts = _wet_parts(days)
    return Labelled(days, parts, heavy(days, parts))


def rain_of_groups(rows: Rows) -> Regions:
    """The time steps of both groups, labelled, without dry ones."""
    parts = _wet_parts(rows)
    source = rows.location // GROUP == SOURCE_GROUP
    return Regions(rows, parts, heavy(rows, parts), source, SIZES)


def is_the_papers(sample: Labelled) -> bool:
    """Whether the abstention sample has the paper's counts, part by part."""
    taken = torch.cat(sample.parts)
    ones = int(sample.y[taken].sum())
    sizes = tuple(len(part) for part in sample.parts)
    return sizes == PARTS and (len(taken) - ones, ones) == CLASSES


def abstention_note(sample: Labelled) -> str:
    """Where the rows come from, and how near they are to the paper's."""
    sizes = [len(part) for part in sample.parts]
    ones = int(sample.y[torch.cat(sample.parts)].sum())
    verdict = (
        "The paper's counts exactly."
        if is_the_papers(sample)
        else f"Stand-in: {sum(sizes):,} rows ({' + '.join(f'{n:,}' for n in sizes)}), "
        f"{ones:,} heavy; the paper has 11,373 (6,844 + 2,257 + 2,272), 548 heavy."
    )
    return (
        f"{verdict} Daily means of the hub's ClimSim files at locations 104 to 107. "
        "Chosen here, for the paper does not say: dry days leave after the split, the "
        "squares are those of the variables in their own units, and all 248 features "
        "are then standardised."
    )


def transfer_note(rows: Rows) -> str:
    """Where the rows come from; the paper gives no count that could confirm them."""
    days = len(np.unique(date_of_stamp(rows.time)))
    return (
        f"Stand-in: rebuilt from {days:,} days of the hub's ClimSim files with the "
        "paper's locations (104 to 107 target, 108 to 111 source) and rows per class, "
        "but nothing in the paper can confirm that they are its rows. Chosen here: "
        "time steps rather than daily means, rows with rain only, variables "
        "standardised."
    )


def _wet_parts(rows: Rows) -> Parts:
    wet = torch.tensor(rows.rain != 0)
    parts = chronological_split(torch.tensor(rows.time))
    parts = Parts(*(part[wet[part]] for part in parts))
    if not all(map(len, parts)):
        message = (
            f"The ClimSim table has {len(rows.rain)} rows, too few for a training, a "
            "validation and a test period with rain. Prepare it from a longer time: "
            "`oneproj-paper data prepare climsim`."
        )
        raise InvalidDataError(message)
    return parts
