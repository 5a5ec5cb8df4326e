"""Classification problems with bounds on rates: groups, rare classes, networks.

Each has a logistic loss to minimise and bounds on counts. Data is generated from a
seed, or is UCI Adult. The score of a row is the output of a linear model or a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from benchmarks.rates.adult import load_adult
from oneproj.problem.terms import AbstractExpression, Constraint
from oneproj.rates import (
    error_rate,
    false_negative_rate,
    false_positive_rate,
    positive_rate,
    precision,
    true_positive_rate,
)

Bounds = dict[str, Constraint]


@dataclass(frozen=True)
class Table:
    """Rows, labels (bool) and the group of each row (0, 1, ...)."""

    x: Tensor
    y: Tensor
    group: Tensor


@dataclass(frozen=True)
class RateProblem:
    """A problem with bounds on rates.

    Attributes:
        name: Of the problem.
        table: Makes the data.
        bounds: Makes the constraints for a score.
        hidden: Sizes of hidden layers; none for a linear model.
        scale: What the weights are multiplied by at the start; large ones saturate.
        shift: What is added to the scores at the start.
    """

    name: str
    table: Callable[[], Table]
    bounds: Callable[[nn.Module, Table], Bounds]
    hidden: tuple[int, ...] = ()
    scale: float = 1.0
    shift: float = 0.0


@dataclass
class Instance:
    """A problem with its model, ready to be solved."""

    model: nn.Module
    table: Table
    bounds: Bounds
    objective: AbstractExpression = field(init=False)

    def __post_init__(self) -> None:
        """Make the logistic loss."""
        x, y, model = self.table.x, self.table.y.float(), self.model

        def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
            rows, labels = batch
            scores: Tensor = model(rows)
            return softplus(scores) - labels * scores

        self.objective = oneproj.mean(losses, data=(x, y))

    def problem(self, constraints: Bounds | None = None) -> oneproj.Problem:
        """The problem, with these constraints in place of its own if given."""
        stated = self.bounds if constraints is None else constraints
        return oneproj.Problem(list(self.model.parameters()), self.objective, stated)


class Scores(nn.Sequential):
    """A linear model or a network whose output has one number per row."""

    def __init__(self, features: int, hidden: tuple[int, ...]) -> None:
        """Make the layers."""
        sizes = (features, *hidden)
        layers: list[nn.Module] = []
        for a, b in zip(sizes, hidden, strict=False):
            layers += [nn.Linear(a, b), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], 1), nn.Flatten(0))


def build(problem: RateProblem, seed: int = 0) -> Instance:
    """Make the data and the model at its start."""
    table = problem.table()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Scores(table.x.shape[1], problem.hidden)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(problem.scale)
        list(model.parameters())[-1].add_(problem.shift)
    return Instance(model, table, problem.bounds(model, table))


def mixture(
    seed: int,
    *,
    rows: int = 3000,
    features: int = 6,
    positives: float = 0.3,
    groups: tuple[float, ...] = (0.6, 0.4),
    apart: float = 1.2,
    curved: bool = False,
) -> Table:
    """Two overlapping classes; groups differ in their share of positives and means.

    Args:
        seed: Of the generator.
        rows: How many.
        features: How many.
        positives: Share of positive rows in the first group; falls with the group.
        groups: Share of each group.
        apart: Distance of the class means, in standard deviations.
        curved: Whether the classes also differ by the product of two features.
    """
    draw = torch.Generator().manual_seed(seed)
    shares = torch.tensor(groups)
    group = torch.multinomial(shares, rows, replacement=True, generator=draw)
    odds = positives / (1.0 + 0.5 * group.double())
    y = torch.rand(rows, generator=draw, dtype=torch.float64) < odds
    x = torch.randn(rows, features, generator=draw)
    direction = torch.randn(features, generator=draw)
    direction = direction / direction.norm()
    x = x + apart * y[:, None] * direction
    x[:, 1] += 0.7 * group
    if curved:
        right = torch.rand(rows, generator=draw) < 0.8  # noqa: PLR2004 - the noise
        flip = torch.where(y == right, 1.0, -1.0)
        x[:, 3] = x[:, 2].sign() * flip * x[:, 3].abs() + 0.7 * x[:, 3]
    return Table(x, y, group)


def neyman_pearson(alpha: float) -> Callable[[nn.Module, Table], Bounds]:
    """At most a share alpha of the negatives is accepted."""
    return lambda score, t: {
        "false positives": false_positive_rate(score, (t.x, t.y)) <= alpha
    }


def misses(alpha: float) -> Callable[[nn.Module, Table], Bounds]:
    """At most a share alpha of the positives is missed."""
    return lambda score, t: {"misses": false_negative_rate(score, (t.x, t.y)) <= alpha}


def parity(gap: float) -> Callable[[nn.Module, Table], Bounds]:
    """Every group is accepted as often as all rows, up to the gap."""

    def make(score: nn.Module, t: Table) -> Bounds:
        everyone = positive_rate(score, t.x)
        return _both_ways(
            [
                positive_rate(score, t.x, where=t.group == k) - everyone
                for k in range(int(t.group.max()) + 1)
            ],
            gap,
        )

    return make


def pairwise_parity(gap: float) -> Callable[[nn.Module, Table], Bounds]:
    """The first two groups are accepted equally often, up to the gap."""

    def make(score: nn.Module, t: Table) -> Bounds:
        a, b = (positive_rate(score, t.x, where=t.group == k) for k in (0, 1))
        return _both_ways([a - b], gap)

    return make


def equal_opportunity(gap: float) -> Callable[[nn.Module, Table], Bounds]:
    """Positives of the first two groups are accepted equally often, up to the gap."""

    def make(score: nn.Module, t: Table) -> Bounds:
        a, b = (
            true_positive_rate(score, (t.x, t.y), where=t.group == k) for k in (0, 1)
        )
        return _both_ways([a - b], gap)

    return make


def equalized_odds(gap: float) -> Callable[[nn.Module, Table], Bounds]:
    """Both classes of the first two groups are accepted equally often."""

    def make(score: nn.Module, t: Table) -> Bounds:
        gaps = []
        for rate in (true_positive_rate, false_positive_rate):
            a, b = (rate(score, (t.x, t.y), where=t.group == k) for k in (0, 1))
            gaps.append(a - b)
        return _both_ways(gaps, gap)

    return make


def _both_ways(gaps: Sequence[AbstractExpression], most: float) -> Bounds:
    bounds = {}
    for k, gap in enumerate(gaps):
        bounds[f"gap {k}"], bounds[f"gap {k}, other way"] = gap <= most, gap >= -most
    return bounds


def group_errors(most: float) -> Callable[[nn.Module, Table], Bounds]:
    """The error of every group is bounded."""
    return lambda score, t: {
        f"error of group {k}": error_rate(score, (t.x, t.y), where=t.group == k) <= most
        for k in range(int(t.group.max()) + 1)
    }


def precise(least: float, recall: float) -> Callable[[nn.Module, Table], Bounds]:
    """A precision, with a share of the positives that must still be found."""
    return lambda score, t: {
        "precision": precision(score, (t.x, t.y)) >= least,
        "recall": true_positive_rate(score, (t.x, t.y)) >= recall,
    }


def both_rates(
    allowed: int, recall: float, *, by_group: bool = False
) -> Callable[[nn.Module, Table], Bounds]:
    """So many false positives at most, of each group or of all, and a recall."""

    def make(score: nn.Module, t: Table) -> Bounds:
        groups = range(int(t.group.max()) + 1) if by_group else [None]
        bounds = {"recall": true_positive_rate(score, (t.x, t.y)) >= recall}
        for k in groups:
            own = torch.ones_like(t.y) if k is None else t.group == k
            most = allowed / int((own & ~t.y).sum())
            fpr = false_positive_rate(score, (t.x, t.y), where=own)
            bounds[f"false positives {k}"] = fpr <= most
        return bounds

    return make


def capacity(most: float) -> Callable[[nn.Module, Table], Bounds]:
    """A bounded share of all rows is accepted."""
    return lambda score, t: {"capacity": positive_rate(score, t.x) <= most}


def group_false_positives(alpha: float) -> Callable[[nn.Module, Table], Bounds]:
    """False positives are bounded in every group."""
    return lambda score, t: {
        f"false positives of group {k}": false_positive_rate(
            score, (t.x, t.y), where=t.group == k
        )
        <= alpha
        for k in range(int(t.group.max()) + 1)
    }


def weighted_cost(most: float) -> Callable[[nn.Module, Table], Bounds]:
    """A cost of misses and false alarms, with weights on the rows."""

    def make(score: nn.Module, t: Table) -> Bounds:
        w = 1.0 + t.x[:, 0].abs()
        fn = false_negative_rate(score, (t.x, t.y), weights=w)
        fp = false_positive_rate(score, (t.x, t.y), weights=w)
        return {"cost": 0.8 * fn + 0.2 * fp <= most}

    return make


def size_and_misses(alpha: float, most: float) -> Callable[[nn.Module, Table], Bounds]:
    """Misses are bounded, and so is the norm of the last layer."""

    def make(score: nn.Module, t: Table) -> Bounds:
        size = oneproj.function(score[-2].weight.norm, curvature="convex")  # type: ignore[index]  # a Sequential
        return {**misses(alpha)(score, t), "size": size <= most}

    return make


def _generated() -> list[RateProblem]:
    two, three = (0.6, 0.4), (0.5, 0.3, 0.2)
    rare = {"positives": 0.01, "rows": 6000, "apart": 2.5}
    small = {"groups": (0.95, 0.05), "apart": 2.0}

    def data(seed: int, **options: object) -> Callable[[], Table]:
        return lambda: mixture(seed, **options)  # type: ignore[arg-type]

    linear = [
        ("np .01", data(1), neyman_pearson(0.01)),
        ("np .05", data(2), neyman_pearson(0.05)),
        ("np .02", data(3, apart=0.8), neyman_pearson(0.02)),
        ("np 0", data(4, rows=1000), neyman_pearson(0.0)),
        ("misses .05", data(5), misses(0.05)),
        ("misses .01, rare", data(6, **rare), misses(0.01)),
        ("misses .1, rare", data(7, **rare), misses(0.1)),
        ("np .0005, rare", data(8, **rare), neyman_pearson(0.0005)),
        ("parity .02", data(9, groups=two), pairwise_parity(0.02)),
        ("parity .005", data(10, groups=two), pairwise_parity(0.005)),
        ("parity .03, three groups", data(11, groups=three), parity(0.03)),
        (
            "parity .02, small group",
            data(12, **small),
            pairwise_parity(0.02),
        ),
        ("opportunity .02", data(13), equal_opportunity(0.02)),
        ("odds .02", data(14), equalized_odds(0.02)),
        ("errors .19", data(15, groups=three, apart=1.6), group_errors(0.19)),
        ("precision .8", data(16, apart=1.6), precise(0.8, 0.4)),
        ("capacity .1", data(17), capacity(0.1)),
        ("group np .05", data(18, groups=three), group_false_positives(0.05)),
        ("cost .35", data(19), weighted_cost(0.35)),
        ("size and misses", data(20), size_and_misses(0.1, 1.0)),
        ("no alarm", data(51, apart=3.0), both_rates(0, 0.2)),
        ("one alarm", data(52, apart=3.0), both_rates(1, 0.25)),
        ("five alarms", data(53, apart=3.0, rows=1000), both_rates(5, 0.5)),
        (
            "one alarm a group",
            data(54, apart=3.0, groups=three),
            both_rates(1, 0.2, by_group=True),
        ),
        ("precision .95, recall .5", data(55, apart=3.0), precise(0.95, 0.5)),
    ]
    networks = [
        ("np .01", data(31, curved=True), neyman_pearson(0.01)),
        ("misses .05", data(32, curved=True), misses(0.05)),
        ("misses .1, rare", data(33, curved=True, **rare), misses(0.1)),
        ("parity .02", data(34, curved=True), pairwise_parity(0.02)),
        ("odds .05", data(35, curved=True), equalized_odds(0.05)),
        ("precision .75", data(36, curved=True), precise(0.75, 0.3)),
        ("errors .2", data(37, curved=True, groups=three), group_errors(0.2)),
        ("no alarm", data(56, curved=True, apart=3.0), both_rates(0, 0.2)),
    ]
    starts = [
        ("np .05, saturated", data(41), neyman_pearson(0.05), (), 300.0, 0.0),
        ("parity .005, saturated", data(42), pairwise_parity(0.005), (), 300.0, 0.0),
        ("np .05, all accepted", data(43), neyman_pearson(0.05), (), 1.0, 30.0),
        ("misses .05, none accepted", data(44), misses(0.05), (), 1.0, -30.0),
        ("misses .05, saturated net", data(45), misses(0.05), (16,), 8.0, 0.0),
    ]
    return [
        *(RateProblem(f"linear, {n}", d, b) for n, d, b in linear),
        *(RateProblem(f"network, {n}", d, b, (16,)) for n, d, b in networks),
        *(RateProblem(n, d, b, h, k, s) for n, d, b, h, k, s in starts),
        RateProblem("cancer, no alarm", cancer, both_rates(0, 0.8)),
    ]


def cancer() -> Table:
    """Scikit-learn's breast cancer table, standardised; benign is positive."""
    x, y = load_breast_cancer(return_X_y=True)
    rows = torch.tensor((x - x.mean(0)) / x.std(0)).float()
    return Table(rows, torch.tensor(y == 1), torch.zeros(len(y), dtype=torch.long))


def _adult() -> list[RateProblem]:
    return [
        RateProblem("adult, parity .02", load_adult, pairwise_parity(0.02)),
        RateProblem("adult, odds .05", load_adult, equalized_odds(0.05)),
        RateProblem("adult, np .05, network", load_adult, neyman_pearson(0.05), (32,)),
    ]


PROBLEMS: dict[str, RateProblem] = {p.name: p for p in (*_generated(), *_adult())}
"""By name."""
