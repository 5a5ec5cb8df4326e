"""Does a mean agree with the paper's? The rule, and the sentence about a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oneproj_paper.experiments.spread import Spread
from oneproj_paper.report.groups import PAPER, Group
from oneproj_paper.report.published import Printed

ALLOWED = 2.0
"""At most this many of the paper's standard deviations lie between the two means."""

PAIR = 2


@dataclass(frozen=True)
class Agreement:
    """How far our mean is from the paper's, in the paper's standard deviations.

    Example:
        >>> Agreement("ambiguity", -2.5).within, Agreement("ambiguity", -2.5).words
        (False, '2.5 sd lower')
    """

    key: str
    """The quantity."""
    distance: float
    """Positive if ours is higher."""

    @property
    def within(self) -> bool:
        """Whether the two means are near enough; NaN never is."""
        return abs(self.distance) <= ALLOWED

    @property
    def words(self) -> str:
        """The distance and its direction."""
        if math.isnan(self.distance):
            return "not a number"
        side = "higher" if self.distance > 0 else "lower"
        amount = f"{abs(self.distance):.1f}"
        if not self.within and float(amount) <= ALLOWED:
            amount = f"just over {amount}"  # rounding must not hide the verdict
        return "equal" if amount == "0.0" else f"{amount} sd {side}"


def compare(key: str, ours: Spread, paper: Printed) -> Agreement:
    """The distance between two means, in units of the paper's standard deviation.

    Where the paper prints a standard deviation of zero, rounding hid it (its appendix D
    says so): half a unit of the last printed digit stands for it.

    Example:
        >>> from oneproj_paper.experiments.spread import spread
        >>> compare("runtime", spread([12.0]), Printed("10.0", "1.0")).words
        '2.0 sd higher'
    """
    unit = paper.sd or paper.resolution
    return Agreement(key, (ours.mean - paper.mean) / unit)


def judged(group: Group) -> bool:
    """Whether a group is held against the paper: its settings, its data, all updates.

    Example:
        >>> judged(Group("abstention-nasa", "oneproj", "projected-sgd", "cuts", ()))
        False
    """
    return group.preset == PAPER and not group.stand_in and bool(group.finished)


def agreement_line(group: Group, found: Sequence[Agreement]) -> str:
    """What a reader should take from a row, in a sentence or two.

    Example:
        >>> group = Group("abstention-nasa", "oneproj", "projected-sgd", "cuts", ())
        >>> agreement_line(group, [])
        'Settings of oneproj: not judged against the paper.'
    """
    said = []
    if group.aborted:
        said.append(
            f"{group.aborted} of {len(group.records)} runs ended early, where a "
            "projection failed: they are not part of the means."
        )
    if group.extrapolated:
        run = group.timed[0]
        said.append(
            f"Stopped after {run.updates:,} of {run.planned_updates:,} updates: the "
            "runtime is extrapolated, and there are no results."
        )
    if group.stand_in:
        said.append("Stand-in data: not judged against the paper.")
    elif group.preset != PAPER:
        said.append("Settings of oneproj: not judged against the paper.")
    elif found:
        said.append(_verdict(found))
        if len(group.finished) == 1:
            said.append("Of 1 run.")
    return " ".join(said)


def _verdict(found: Sequence[Agreement]) -> str:
    outside = [agreement for agreement in found if not agreement.within]
    if outside:
        listed = "; ".join(f"{a.key} is {a.words}" for a in outside)
        rest = len(found) - len(outside)
        others = f" The other {'one' if rest == 1 else rest} within." if rest else ""
        return f"Outside two of the paper's standard deviations: {listed}.{others}"
    farthest = max(found, key=lambda agreement: abs(agreement.distance))
    if len(found) == 1:
        return f"Agrees: {farthest.key} is {farthest.words}."
    count = "both" if len(found) == PAIR else f"all {len(found)}"
    return f"Agrees in {count}; farthest is {farthest.key}, {farthest.words}."
