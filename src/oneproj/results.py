"""What the library returns: status, counts, projection, certificate, solution.

Pure data, which prints as tables and converts to plain JSON types.
"""

from __future__ import annotations

import dataclasses
import enum
import html
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from oneproj.errors import deprecate, old_argument

Rows: TypeAlias = Sequence[tuple[str, ...]]
"""A table, the first row as a heading."""


def table(rows: Rows) -> list[str]:
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


def as_text(parts: Sequence[Rows | str]) -> str:
    """Write tables and sentences below each other, with a blank line before a table.

    Example:
        >>> print(as_text([[("a",), ("1",)], "A note.", [("b",), ("2",)]]))
        a
        -
        1
        A note.
        <BLANKLINE>
        b
        -
        2
    """
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        else:
            lines += [*([""] if lines else []), *table(part)]
    return "\n".join(lines)


def as_html(parts: Sequence[Rows | str]) -> str:
    """Write tables and sentences as HTML, for a notebook; every text is escaped.

    Example:
        >>> as_html([[("a",), ("<1>",)], "b"]).partition("<tbody>")[2]
        '<tr><td>&lt;1&gt;</td></tr></tbody></table><p>b</p>'
    """
    written = []
    for part in parts:
        if isinstance(part, str):
            written.append(f"<p>{html.escape(part)}</p>")
            continue
        body = "".join(_html_row(row, "td") for row in part[1:])
        head = _html_row(part[0], "th")
        written.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    return "".join(written)


def _html_row(cells: Sequence[str], tag: str) -> str:
    inside = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def jsonable(value: Any) -> Any:  # noqa: ANN401 - any dataclass, any JSON value
    """A value in plain JSON types; what JSON cannot hold becomes a string.

    Example:
        >>> import torch
        >>> jsonable({"gap": math.inf, "n": (1, 2), "point": torch.zeros(2, 3)})
        {'gap': 'inf', 'n': [1, 2], 'point': 'a tensor of shape (2, 3)'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return _leaf(value)


def _leaf(value: object) -> bool | float | str | None:
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, Tensor):  # as large as the model: not for JSON
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None or isinstance(value, bool | str):
        return value
    # The abstract numbers, so that NumPy's scalars stay numbers.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)


class Readable(ABC):
    """A dataclass that prints as tables or HTML, and converts to JSON types."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, in plain JSON types, for ``json.dump``.

        Numbers that are not finite become strings, and tensors their shapes.
        """
        found: dict[str, Any] = jsonable(self)
        return found

    @abstractmethod
    def _parts(self) -> list[Rows | str]:
        """The tables and sentences to show."""

    def __str__(self) -> str:
        """A readable table."""
        return as_text(self._parts())

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return as_html(self._parts())


class _StatusType(enum.EnumMeta):
    """``Status`` also has a member under its old name."""

    def __getattr__(cls, name: str) -> Status:
        if name != "EMPTY":
            raise AttributeError(name)
        deprecate("Status.EMPTY", "Status.PROVEN_INFEASIBLE")
        return Status.PROVEN_INFEASIBLE


class Status(enum.Enum, metaclass=_StatusType):
    """How a run or a projection ended; the value is the message.

    Example:
        >>> Status.FEASIBLE.ok, Status.INFEASIBLE.ok
        (True, False)
    """

    FEASIBLE = "every residual is <= 0 on the full data"
    INTERRUPTED = "stopped before the planned updates; the point so far is feasible"
    OUT_OF_TIME = "stopped by the time budget; the point so far is feasible"
    START = "the start, which is feasible; the run did not improve on it"
    EARLIER = "an earlier point of the run, which is feasible; its end was worse"
    INFEASIBLE = "a residual is still > 0 after the projection"
    PROVEN_INFEASIBLE = (
        "no point satisfies all constraints: their linearisations prove it"
    )

    @property
    def ok(self) -> bool:
        """Whether the point that was returned is feasible."""
        return self not in (Status.INFEASIBLE, Status.PROVEN_INFEASIBLE)


def _with_notes(status: Status, notes: Sequence[str]) -> str:
    if not notes:
        return status.value
    first = "feasible" if status is Status.FEASIBLE else status.value
    return "; ".join([first, *notes])


@dataclass(frozen=True)
class _Nearest:
    """When a feasible point counts as the nearest one."""

    kkt_residual: float = 1e-2
    """At most: a hundredth of the way moved is left unbalanced."""
    distance_over_bound: float = 1.1
    """The distance may exceed a proven lower bound by this factor, at most."""
    negligible_move: float = 1e-4
    """A move of this share of the parameters' norm: what is left to gain is nothing."""


NEAREST = _Nearest()
KEPT = {Status.START: "the start", Status.EARLIER: "an earlier point"}
"""What the answer is, where it is not what the run ended with."""


@dataclass(frozen=True)
class Update:
    """What a callback gets after each update: estimates, as the method saw them.

    Attributes:
        update: Which one it was, from 1.
        steps: How many are planned.
        objective: As this update saw it.
        residuals: The value of every constraint minus its bound, likewise.
        seconds: Since the run began.
        outer: Outer iterations that are complete; None for a method that has none.
        at_center: Whether this update completed one: the parameters hold a new centre.

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
    at_center: bool = False


@dataclass
class Counts:
    """What a run used up to its answer, counted where it happened.

    What the certificate used afterwards is in the details of its measures.

    Attributes:
        objective_gradients: Backward passes through the objective.
        constraint_gradients: Those through one constraint, on a minibatch or in full.
        constraint_passes: Evaluations of one constraint on all of its data.
        projections: Calls of the projector. At the edge of the safeguard ball it is
            one onto what is feasible *and* in the ball. Only if that has no point,
            against what the theorems assume, a second one leaves the ball out;
            ``Projection.remark`` says so and the gradients of both are counted.

    Example:
        >>> Counts(projections=1).projections
        1
    """

    objective_gradients: int = 0
    constraint_gradients: int = 0
    constraint_passes: int = 0
    projections: int = 0


@old_argument("evaluations", "gradients")
@dataclass(frozen=True)
class Projection(Readable):
    """The outcome of one projection onto the feasible set, from x to x_hat.

    Attributes:
        status: How it ended; ``status.ok`` if the point is feasible.
        distance: How far the parameters moved.
        residuals: The value of every constraint afterwards; feasible means <= 0.
        multipliers: mu >= 0 with ``x_hat - x + sum_j mu_j grad c_j(x_hat) = 0``.
        gradients: Full constraint gradients used: points at which all constraints
            were seen, also where their values alone were enough.
        kkt_residual: The norm of the left-hand side above, relative to the distance
            moved: near 0 where no feasible point around x_hat is nearer to x. If the
            lower bound proves that, the gradients are those of the proof: at a kink
            they are from several points. Infinite where constraints are counts, which
            have no gradient.
        residuals_before: Those of x.
        lower_bound: No feasible point is nearer than this; None where nothing proves
            it.
        remark: What was unusual about it, in words.
        residuals_in_float64: Those of x_hat once more, of constraints whose functions
            compute in less than float64. Only ``oneproj.project`` computes them; for a
            solution the certificate has them.
        history: For every point that the search visited, in order: the gradients used
            so far, the worst residual there (infinite where a value was not finite),
            and its distance from x. Points where some values alone were taken are in
            it too. Empty for ``ClosedForm``, which visits no point on the way.
            ``oneproj.projection.plot_history`` draws it.
        relative_distance: The distance as a share of the norm of the parameters before
            it; None from a projector of your own that leaves it out.

    Example:
        >>> moved = Projection(Status.FEASIBLE, 0.25, {"cap": -1e-9}, {"cap": 0.5}, 1)
        >>> moved.distance, moved.status.ok
        (0.25, True)
    """

    status: Status
    distance: float
    residuals: Mapping[str, float]
    multipliers: Mapping[str, float]
    gradients: int
    kkt_residual: float = 0.0
    residuals_before: Mapping[str, float] = field(default_factory=dict)
    lower_bound: float | None = None
    remark: str = ""
    residuals_in_float64: Mapping[str, float] = field(default_factory=dict)
    history: Sequence[tuple[int, float, float]] = ()
    relative_distance: float | None = None

    @property
    def evaluations(self) -> int:
        """Deprecated since 0.2.0: ``gradients``."""
        deprecate("Projection.evaluations", "Projection.gradients")
        return self.gradients

    @property
    def is_nearest(self) -> bool:
        """Whether the KKT residual, or the lower bound, vouches for the distance.

        A point that is not feasible is not the nearest one, whatever they are.
        """
        if not self.status.ok:
            return False
        bound = self.lower_bound
        if bound is not None and self.distance <= NEAREST.distance_over_bound * bound:
            return True
        return self.kkt_residual <= NEAREST.kkt_residual

    @property
    def may_be_nearer(self) -> bool:
        """Whether a feasible point may exist that is noticeably nearer.

        Not after a move of a ten-thousandth of the parameters' norm or less: a nearer
        point would hardly differ.
        """
        share = self.relative_distance
        hardly = share is not None and share <= NEAREST.negligible_move
        return self.status.ok and not self.is_nearest and not hardly

    @property
    def status_text(self) -> str:
        """The status in words; of a feasible point, also if a nearer one may exist."""
        return _with_notes(self.status, self._notes())

    def to_dict(self) -> dict[str, Any]:
        """This projection in plain JSON types, for ``json.dump``."""
        return super().to_dict() | {"status_text": self.status_text}

    def _notes(self) -> list[str]:
        if not self.may_be_nearer:
            return []
        because = f"KKT residual of the projection {self.kkt_residual:.2g}"
        if math.isinf(self.kkt_residual):
            because = "the projection has no KKT residual"
        return [f"a nearer feasible point may exist: {because}"]

    def _parts(self) -> list[Rows | str]:
        bound = "unknown" if self.lower_bound is None else f"{self.lower_bound:.6e}"
        above = [
            ("quantity", "value"),
            ("status", self.status_text),
            ("distance moved", f"{self.distance:.6e}"),
            ("lower bound", bound),
            ("gradients used", str(self.gradients)),
            ("KKT residual", f"{self.kkt_residual:.3e}"),
        ]
        below: list[tuple[str, ...]] = [("constraint", "before", "after", "multiplier")]
        for name, after in self.residuals.items():
            others = self.residuals_before.get(name), after, self.multipliers.get(name)
            below.append((name, *("" if x is None else f"{x:.3e}" for x in others)))
        return [above, *filter(None, [self.remark]), below]


@dataclass(frozen=True)
class Measure:
    """One certified number, beside the bound that theory gives, where it gives one.

    Attributes:
        name: ``certificate[name]`` finds it.
        value: The number.
        bound: The value may not exceed this; None where theory states no bound.
        source: The definition or theorem behind the value.
        error: How far the computed value may be from the exact one.
        details: What else was found on the way.
        at_least: Whether the bound is a lower one: a slope must not fall below it.

    Example:
        >>> Measure("Moreau residual", 0.4, bound=1.0, source="Theorem 2").holds
        True
    """

    name: str
    value: float
    bound: float | None = None
    source: str = ""
    error: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    at_least: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the bound is met even at the far end of the error; None without."""
        if self.bound is None:
            return None
        if self.at_least:
            return self.value - self.error >= self.bound
        return self.value + self.error <= self.bound


@dataclass(frozen=True)
class Certificate(Readable):
    """What is known about a point: a table of measures, with the multipliers.

    ``oneproj.certify`` says what each measure proves, and of what problems.

    Attributes:
        measures: Feasibility, KKT residual and complementarity; more if asked for.
        multipliers: By about how much the objective would fall per unit by which a
            bound is loosened.
        withdrawn: Why a theorem's bound is not stated: what the theorem assumes, and
            what was seen instead.

    Example:
        >>> certificate = Certificate((Measure("feasibility", -0.1, bound=0.0),), {})
        >>> certificate.holds, certificate["feasibility"].value
        (True, -0.1)
    """

    measures: tuple[Measure, ...]
    multipliers: Mapping[str, float]
    withdrawn: tuple[str, ...] = ()

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
        """Whether every bound that exists is met, and none was withdrawn."""
        met = all(measure.holds is not False for measure in self.measures)
        return met and not self.withdrawn

    def _parts(self) -> list[Rows | str]:
        rows = [("measure", "value", "bound", "holds", "source")]
        mark = {True: "yes", False: "NO", None: ""}
        for m in self.measures:
            sign = ">= " if m.at_least else ""
            bound = "" if m.bound is None else f"{sign}{m.bound:.3e}"
            value = f"{m.value:.3e}" + (f" +-{m.error:.0e}" if m.error else "")
            rows.append((m.name, value, bound, mark[m.holds], m.source))
        pairs = [f"{name}={mu:.4g}" for name, mu in self.multipliers.items()]
        below = ["multipliers: " + ", ".join(pairs)] if pairs else []
        below += [f"withdrawn: {reason}" for reason in self.withdrawn]
        return [rows, *below]


@dataclass(frozen=True)
class Solution(Readable):
    """What ``solve`` returns; the parameters themselves hold the answer.

    Attributes:
        status: How the run ended; ``status.ok`` if the answer is feasible.
        objective: Of the answer, on all data; NaN where ``AutoPenalty.finish`` was not
            given one.
        residuals: Every constraint minus its bound, likewise; feasible means <= 0.
        certificate: What is known about the answer.
        counts: What the run used.
        projection: How far the answer is from the point that was trained. With
            ``Status.START`` or ``Status.EARLIER`` it describes the projection that was
            made, not the answer.
        history: A column (update, objective, seconds and one per constraint) to its
            values, as the method saw them: estimates with a minibatch oracle.
        seconds: Of training, projection and certificate, and of the start's check: a
            start that is feasible on all data is never exchanged for a worse answer.
        settings: Of the run, with what was chosen for you (oracle, lr, ...).
        remark: What the status leaves out: that training ended far from feasible, or
            that a schedule ended with a higher objective than a feasible start.

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
    remark: str = ""

    @property
    def feasible(self) -> bool:
        """Whether every residual is <= 0, exactly."""
        return all(residual <= 0 for residual in self.residuals.values())

    def to_dict(self) -> dict[str, Any]:
        """This solution in plain JSON types, for ``json.dump``.

        Numbers that are not finite become strings. The parameters are not in it.
        """
        told = {"feasible": self.feasible, "status_text": self.status_text}
        return super().to_dict() | told | {"projection": self.projection.to_dict()}

    @property
    def status_text(self) -> str:
        """The status in words, with what there is to say of the projection."""
        projected = self.status.ok and self.status not in KEPT
        notes = self.projection._notes() if projected else []  # noqa: SLF001 - our own
        return _with_notes(self.status, [*notes, *filter(None, [self.remark])])

    def _parts(self) -> list[Rows | str]:
        rows = [("quantity", "value"), ("status", self.status_text)]
        if not math.isnan(self.objective):
            rows.append(("objective", f"{self.objective:.6g}"))
        rows += [(f"residual: {n}", f"{r:.3e}") for n, r in self.residuals.items()]
        rows.append(("distance moved", self._moved()))
        rows += [
            (f.name.replace("_", " "), str(getattr(self.counts, f.name)))
            for f in dataclasses.fields(self.counts)
        ]
        rows += [(f"seconds: {n}", f"{s:.3f}") for n, s in self.seconds.items()]
        told = "" if self.status in KEPT else self.projection.remark
        remark = filter(None, [told])
        return [rows, *remark, *self.certificate._parts()]  # noqa: SLF001 - our own

    def _moved(self) -> str:
        far = f"{self.projection.distance:.3e}"
        if self.status in KEPT:
            kept = KEPT[self.status]
            return f"0: the projection moved {far}, but {kept} was kept"
        if self.status.ok:
            return far
        best = max(self.projection.residuals.values(), default=math.nan)
        return f"0: the best residual found was {best:.3e}, {far} away"
