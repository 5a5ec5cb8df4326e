"""What comes back: status, counts, projection, certificate, solution. Pure data."""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


class Status(enum.Enum):
    """How a run or a projection ended; the value is the message.

    Example:
        >>> Status.FEASIBLE.ok, Status.INFEASIBLE.ok
        (True, False)
    """

    FEASIBLE = "every residual is <= 0 on the full data"
    INTERRUPTED = "stopped before the planned updates; the point so far is feasible"
    OUT_OF_TIME = "stopped by the time budget; the point so far is feasible"
    INFEASIBLE = "a residual is still > 0 after the terminal projection"
    EMPTY = "no point satisfies all constraints: their linearisations prove it"

    @property
    def ok(self) -> bool:
        """Whether the point that was returned is feasible."""
        return self not in (Status.INFEASIBLE, Status.EMPTY)


@dataclass(frozen=True)
class Update:
    """What a callback gets after each update: estimates, as the method saw them.

    Example:
        >>> update = Update(3, 500, 0.7, {"cap": 0.1}, 0.01)
        >>> f"{update.update}/{update.steps}"
        '3/500'
    """

    update: int
    steps: int
    objective: float
    residuals: Mapping[str, float]
    seconds: float
    outer: int | None = None
    """Outer iterations that are complete; None for a method that has none."""
    at_center: bool = False
    """Whether this update completed one: the parameters hold a new centre."""


@dataclass
class Counts:
    """What a run used up to its answer, counted where it happened.

    A *full pass* is one evaluation of one constraint on all of its data; a constraint
    gradient is one backward pass through one constraint, on a minibatch or in full.
    What the certificate used afterwards is in the details of its measures.

    A projection is one call of the projector. At the edge of the safeguard ball it is
    one onto what is feasible *and* in the ball. Only if that has no point, against what
    the theorems assume, a second one leaves the ball out; ``Projection.remark`` says so
    and the gradients of both are counted.

    Example:
        >>> Counts(projections=1).projections
        1
    """

    objective_gradients: int = 0
    constraint_gradients: int = 0
    constraint_passes: int = 0
    projections: int = 0


@dataclass(frozen=True)
class Projection:
    """The outcome of one projection onto the feasible set.

    Example:
        >>> moved = Projection(Status.FEASIBLE, 0.25, {"cap": -1e-9}, {"cap": 0.5}, 1)
        >>> moved.distance, moved.status.ok
        (0.25, True)
    """

    status: Status
    distance: float
    """How far the parameters moved."""
    residuals: Mapping[str, float]
    """The value of every constraint afterwards; feasible means <= 0."""
    multipliers: Mapping[str, float]
    """mu >= 0 with ``x_hat - x + sum_j mu_j grad c_j(x_hat) = 0``."""
    evaluations: int
    """Full constraint gradients used: points at which all constraints were seen."""
    kkt_residual: float = 0.0
    """The norm of the left-hand side above, relative to the distance moved; where the
    lower bound vouches for that, with the gradients that prove it, as at a kink."""
    residuals_before: Mapping[str, float] = field(default_factory=dict)
    lower_bound: float | None = None
    """No feasible point is nearer than this; None where nothing proves it."""
    remark: str = ""
    """What was unusual about it, in words."""

    def __str__(self) -> str:
        """A readable table, and one of the constraints."""
        bound = "unknown" if self.lower_bound is None else f"{self.lower_bound:.6e}"
        above = [
            ("quantity", "value"),
            ("status", self.status.value),
            ("distance moved", f"{self.distance:.6e}"),
            ("lower bound", bound),
            ("gradients used", str(self.evaluations)),
            ("KKT residual", f"{self.kkt_residual:.3e}"),
        ]
        below: list[tuple[str, ...]] = [("constraint", "before", "after", "multiplier")]
        for name, after in self.residuals.items():
            others = self.residuals_before.get(name), after, self.multipliers.get(name)
            below.append((name, *("" if x is None else f"{x:.3e}" for x in others)))
        remark = [self.remark] if self.remark else []
        return "\n".join([*table(above), *remark, "", *table(below)])


@dataclass(frozen=True)
class Measure:
    """One certified number, beside the bound that theory gives, where it gives one.

    Example:
        >>> Measure("Moreau residual", 0.4, bound=1.0, source="Theorem 2").holds
        True
    """

    name: str
    value: float
    bound: float | None = None
    """The value may not exceed this; None where theory states no bound."""
    source: str = ""
    """The definition or theorem behind the value."""
    error: float = 0.0
    """How far the computed value may be from the exact one."""
    details: Mapping[str, Any] = field(default_factory=dict)
    at_least: bool = False
    """Whether the bound is a lower one instead: a slope must not fall below it."""

    @property
    def holds(self) -> bool | None:
        """Whether the bound is met even at the far end of the error; None without."""
        if self.bound is None:
            return None
        if self.at_least:
            return self.value - self.error >= self.bound
        return self.value + self.error <= self.bound


@dataclass(frozen=True)
class Certificate:
    """What is known about a point: a table of measures, with the multipliers.

    Example:
        >>> certificate = Certificate((Measure("feasibility", -0.1, bound=0.0),), {})
        >>> certificate.holds, certificate["feasibility"].value
        (True, -0.1)
    """

    measures: tuple[Measure, ...]
    multipliers: Mapping[str, float]

    def __getitem__(self, name: str) -> Measure:
        """The measure of that name."""
        for measure in self.measures:
            if measure.name == name:
                return measure
        known = ", ".join(m.name for m in self.measures)
        message = f"No measure {name!r} in this certificate; it has: {known}."
        raise KeyError(message)

    def __contains__(self, name: object) -> bool:
        """Whether this certificate has a measure of that name."""
        return any(measure.name == name for measure in self.measures)

    @property
    def holds(self) -> bool:
        """Whether every bound that exists is met."""
        return all(measure.holds is not False for measure in self.measures)

    def __str__(self) -> str:
        """A readable table."""
        rows = [("measure", "value", "bound", "holds", "source")]
        mark = {True: "yes", False: "NO", None: ""}
        for m in self.measures:
            sign = ">= " if m.at_least else ""
            bound = "" if m.bound is None else f"{sign}{m.bound:.3e}"
            value = f"{m.value:.3e}" + (f" +-{m.error:.0e}" if m.error else "")
            rows.append((m.name, value, bound, mark[m.holds], m.source))
        lines = table(rows)
        if self.multipliers:
            pairs = (f"{name}={mu:.4g}" for name, mu in self.multipliers.items())
            lines.append("multipliers: " + ", ".join(pairs))
        return "\n".join(lines)


@dataclass(frozen=True)
class Solution:
    """What ``solve`` returns; the parameters themselves hold the answer.

    ``history`` maps a column (update, objective, seconds and one per constraint) to
    its values, as the method saw them: minibatch estimates with a minibatch oracle.

    Example:
        >>> solution = Solution(
        ...     Status.FEASIBLE, 1.0, {"cap": -0.5}, Certificate((), {}),
        ...     Counts(projections=1), Projection(Status.FEASIBLE, 0.0, {}, {}, 1))
        >>> solution.feasible, solution.to_dict()["counts"]["projections"]
        (True, 1)
    """

    status: Status
    objective: float
    residuals: Mapping[str, float]
    certificate: Certificate
    counts: Counts
    projection: Projection
    history: Mapping[str, list[float]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def feasible(self) -> bool:
        """Whether every residual is <= 0, exactly."""
        return all(residual <= 0 for residual in self.residuals.values())

    def to_dict(self) -> dict[str, Any]:
        """This solution as plain JSON types (non-finite numbers become strings)."""
        plain: dict[str, Any] = _plain(self)
        return plain | {"feasible": self.feasible}

    def __str__(self) -> str:
        """A readable table."""
        rows = [("quantity", "value"), ("status", self.status.value)]
        rows.append(("objective", f"{self.objective:.6g}"))
        rows += [(f"residual: {n}", f"{r:.3e}") for n, r in self.residuals.items()]
        rows.append(("distance moved", self._moved()))
        rows += [
            (f.name.replace("_", " "), str(getattr(self.counts, f.name)))
            for f in dataclasses.fields(self.counts)
        ]
        rows += [(f"seconds: {n}", f"{s:.3f}") for n, s in self.seconds.items()]
        remark = [self.projection.remark] if self.projection.remark else []
        return "\n".join([*table(rows), *remark, "", str(self.certificate)])

    def _moved(self) -> str:
        far = f"{self.projection.distance:.3e}"
        if self.status.ok:
            return far
        best = max(self.projection.residuals.values(), default=math.nan)
        return f"0: the best residual found was {best:.3e}, {far} away"


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lay rows out in columns, the first row as a heading.

    Example:
        >>> table([("a", "b"), ("1", "2")])
        ['a  b', '-  -', '1  2']
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in (rows[0], rule, *rows[1:])
    ]


def _plain(value: Any) -> Any:  # noqa: ANN401 - any dataclass, any JSON value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain_leaf(value)


def _plain_leaf(value: object) -> bool | float | str | None:
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, Tensor):  # a point, as large as the model: not for JSON
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None or isinstance(value, bool | str):
        return value
    # The abstract numbers, so that NumPy's scalars stay numbers.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)
