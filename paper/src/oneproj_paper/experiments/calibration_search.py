"""The search of a calibration: two thresholds, moved until two errors are met.

The error of class j grows with threshold j and hardly depends on the other one, so each
class has a search of its own and both take a step after every trial. A step is a secant
of log(error) against log(cap), where the cap is the threshold plus its slack: errors
are roughly in proportion to caps, and caps are positive where thresholds need not be.
A bracket takes over where the secant leaves it. Nothing here knows what a trial is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oneproj.errors import InvalidProblemError
from oneproj_paper.errors import CalibrationError

Pair = tuple[float, float]
Bracket = tuple[float | None, float | None]

ROUNDS = 14
"""Trials, at most."""
TIGHTEST, LOOSEST = 1e-4, 2.0
"""Caps. At 2 a score may be -1 on all of its class: refuse everything."""
CLOSE = 0.02
"""An error is met if it falls short of the target by this share of it, or by less."""
PAIRED = 0.25
"""Of that, where the targets are errors on the same examples: they share the noise."""
INVISIBLE = 0.25
"""Of a standard error: a smaller excess counts as none."""
ROUNDING = 1e-9
"""Of an error on the same examples: any other excess is an example more."""
LONGEST = math.log(4.0)
"""Of a step, in log(cap)."""
FLATTEST, STEEPEST = 0.3, 4.0
"""Of a secant; what lies outside is noise."""
NARROW = 0.05
"""A bracket of log(cap) that holds nothing more."""
MARGIN = 0.1
"""Of a bracket: a step that ends nearer to its ends goes to the middle."""


@dataclass(frozen=True)
class Trial:
    """Thresholds, and what training under them gave on validation data."""

    thresholds: Pair
    errors: Pair
    """Of each class, the mean over the seeds."""
    ambiguity: float


@dataclass(frozen=True)
class Task:
    """What is searched for."""

    targets: Pair
    """The error that each class should come up to."""
    slacks: Pair
    """A cap is a threshold plus this."""
    examples: Pair
    """Of each class, over all seeds: they limit how well an error is known."""
    paired: bool = False
    """Whether the targets are what another training reached on these examples."""

    def __post_init__(self) -> None:
        """Refuse what cannot be an error."""
        if not all(0.0 < target < 1.0 for target in self.targets):
            message = (
                "A class error is a share: targets must lie between 0 and 1, got "
                f"{self.targets}. Write 5 percent as 0.05."
            )
            raise InvalidProblemError(message)

    def keeps(self, trial: Trial) -> bool:
        """Whether no error is above its target, but for what no sample could tell."""
        sides = zip(self.sides(), trial.errors, strict=True)
        return all(error <= side.most for side, error in sides)

    def sides(self) -> list[_Side]:
        """The search of each class, at its beginning."""
        numbers = zip(self.targets, self.slacks, self.examples, strict=True)
        return [_Side(*each, self.paired) for each in numbers]


def search(
    measure: Callable[[Pair], Trial],
    task: Task,
    start: Pair,
    *,
    rounds: int = ROUNDS,
    report: Callable[[Trial], None] | None = None,
) -> tuple[Trial, list[Trial]]:
    """Find thresholds whose errors come up to the targets and not visibly over them.

    Of all trials that keep the targets, the one with the least ambiguity is taken: it
    is what training minimises. If none of them comes up to both targets, the one that
    is nearest to them is: see ``shortfalls``.

    Args:
        measure: Makes a trial.
        task: Targets, slacks and examples.
        start: The first thresholds.
        rounds: Trials, at most.
        report: Called with every trial.

    Returns:
        The trial that was taken, and all of them.

    Raises:
        CalibrationError: No trial keeps the targets.

    Example:
        >>> def measure(thresholds):  # errors are a third of the caps
        ...     a, b = thresholds
        ...     return Trial(thresholds, (a / 3, b / 3), 1 - a - b)
        >>> task = Task(targets=(0.1, 0.05), slacks=(0.0, 0.0), examples=(1e6, 1e6))
        >>> found, trials = search(measure, task, start=(0.5, 0.5))
        >>> [round(error, 3) for error in found.errors], len(trials)
        ([0.099, 0.049], 2)
    """
    sides = task.sides()
    trials: list[Trial] = []
    thresholds = start
    for _ in range(rounds):
        trial = measure(thresholds)
        trials.append(trial)
        if report is not None:
            report(trial)
        for side, each, error in zip(sides, thresholds, trial.errors, strict=True):
            side.see(each, error)
        if all(side.done for side in sides):
            break
        first, second = (side.next() for side in sides)
        thresholds = first, second
    kept = [trial for trial in trials if task.keeps(trial)]
    if not kept:
        raise CalibrationError(_unreachable(trials, task.targets))
    return _best(kept, task), trials


def comes_up(trial: Trial, task: Task) -> bool:
    """Whether both errors are at their targets: neither over nor clearly below.

    Example:
        >>> task = Task(targets=(0.1, 0.1), slacks=(0.0, 0.0), examples=(1e6, 1e6))
        >>> comes_up(Trial((0.2, 0.2), (0.099, 0.1), 0.0), task)
        True
        >>> comes_up(Trial((0.2, 0.1), (0.099, 0.05), 0.0), task)
        False
    """
    return task.keeps(trial) and not shortfalls(trial, task)


def shortfalls(trial: Trial, task: Task) -> list[str]:
    """In words, which classes stay clearly below their target.

    Example:
        >>> task = Task(targets=(0.1, 0.1), slacks=(0.0, 0.0), examples=(1e6, 1e6))
        >>> shortfalls(Trial((0.2, 1.9), (0.099, 0.02), 0.0), task)
        ['class 1 stays at 2.0 % where 10.0 % are allowed']
    """
    sides = enumerate(zip(task.sides(), trial.errors, strict=True))
    words = (
        f"class {j} stays at {error:.1%} where {side.target:.1%} are allowed"
        for j, (side, error) in sides
        if error < side.target - side.visible
    )
    return [each.replace("%", " %") for each in words]


@dataclass
class _Side:
    """The search of one class; x is log(cap)."""

    target: float
    slack: float
    examples: float
    paired: bool
    seen: list[Pair] = field(default_factory=list)  # x and error, the latest last
    bracket: Bracket = (None, None)

    @property
    def noise(self) -> float:
        """The standard error of an error that equals the target."""
        return math.sqrt(self.target * (1 - self.target) / self.examples)

    @property
    def visible(self) -> float:
        """How far below the target is clearly below: noise, or a small share."""
        return max(self.noise, CLOSE * self.target)

    @property
    def window(self) -> float:
        """How far below the target the search is content with."""
        return (PAIRED if self.paired else 1.0) * self.visible

    @property
    def most(self) -> float:
        """The largest error that counts as not above the target."""
        return self.target + (ROUNDING if self.paired else INVISIBLE * self.noise)

    def see(self, threshold: float, error: float) -> None:
        """Keep what a trial says; an end of the bracket that it contradicts goes."""
        x = math.log(max(threshold + self.slack, TIGHTEST))
        self.seen.append((x, error))
        low, high = self.bracket
        if error > self.most:
            self.bracket = (low if low is not None and low < x else None), x
        elif error < self.target - self.window:
            self.bracket = x, (high if high is not None and high > x else None)
        low, high = self.bracket
        if low is not None and high is not None and high - low < NARROW:
            self.bracket = None, None  # the other class has moved since: it is outdated

    @property
    def done(self) -> bool:
        """Whether the error is met, or the cap cannot be any looser."""
        x, error = self.seen[-1]
        loosest = x >= math.log(LOOSEST) - 1e-9
        return error <= self.most and (loosest or error >= self.target - self.window)

    def next(self) -> float:
        """The next threshold: the same where the error is met."""
        x, error = self.seen[-1]
        if not self.done:
            x = min(max(self._step(x, error), math.log(TIGHTEST)), math.log(LOOSEST))
        return math.exp(x) - self.slack

    def _step(self, x: float, error: float) -> float:
        aim = math.log(self.target - self.window / 2)
        away = (aim - self._log(error)) / self._slope()
        x += min(max(away, -LONGEST), LONGEST)
        low, high = self.bracket
        if low is None or high is None:
            return x
        margin = MARGIN * (high - low)
        return x if low + margin < x < high - margin else (low + high) / 2

    def _slope(self) -> float:
        """The slope of log(error) against log(cap); 1 as long as nothing is known."""
        (x, error), earlier = self.seen[-1], reversed(self.seen[:-1])
        before = next((other for other in earlier if abs(other[0] - x) > CLOSE), None)
        if before is None:
            return 1.0
        slope = (self._log(error) - self._log(before[1])) / (x - before[0])
        return min(max(slope, FLATTEST), STEEPEST)

    def _log(self, error: float) -> float:
        return math.log(max(error, 0.5 / self.examples))


def _best(kept: Sequence[Trial], task: Task) -> Trial:
    if any(comes_up(trial, task) for trial in kept):
        return min(kept, key=lambda trial: trial.ambiguity)

    def far(trial: Trial) -> float:
        pairs = zip(trial.errors, task.targets, strict=True)
        return math.hypot(*(error / target - 1.0 for error, target in pairs))

    # Without ambiguity left to lose, it says nothing about which trial is the nearest.
    return min(kept, key=lambda trial: (far(trial), trial.ambiguity))


def _unreachable(trials: Sequence[Trial], targets: Pair) -> str:
    def excess(trial: Trial) -> float:
        pairs = zip(trial.errors, targets, strict=True)
        return max(error / target for error, target in pairs)

    best = min(trials, key=excess)
    errors = " and ".join(f"{error:.2%}" for error in best.errors)
    wanted = " and ".join(f"{target:.2%}" for target in targets)
    caps = ", ".join(f"{threshold:.4g}" for threshold in best.thresholds)
    message = (
        f"No thresholds were found whose class errors on validation data stay within "
        f"{wanted}. The nearest of {len(trials)} trials, ({caps}), gives {errors}. A "
        "model that fits its training data too well is wrong elsewhere however tight "
        "its caps are. Try: (a) larger targets, (b) more rounds or seeds, (c) a "
        "smaller model or fewer updates."
    )
    return message.replace("%", " %")
