"""A declaration that what is seen contradicts is refused; what is true is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch

import oneproj
from oneproj.errors import InvalidProblemError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.cuts import Cuts


def test_a_concave_function_that_is_declared_convex_is_refused() -> None:
    w = torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    outside = oneproj.function(lambda: 1 - w.square().sum(), curvature="convex")
    with pytest.raises(
        InvalidProblemError, match="'outside' is declared convex"
    ) as bad:
        oneproj.project(w, {"outside": outside <= 0.0})
    assert "its value is -4.5125" in str(bad.value)
    assert "Leave the term's curvature out" in str(bad.value)
    assert w.tolist() == [0.1, 0.2]


def test_a_curved_function_that_is_declared_linear_is_refused() -> None:
    w = torch.tensor([0.1, 0.2], requires_grad=True)
    outside = oneproj.function(lambda: 1 - w.square().sum(), curvature="linear")
    with pytest.raises(InvalidProblemError, match="'outside' is declared linear"):
        oneproj.project(w, {"outside": outside <= 0.0})


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_refutes_nothing(dtype: torch.dtype, shift: float) -> None:
    """Terms of the size of the shift cancel; what is left is mostly rounding."""
    generator = torch.Generator().manual_seed(0)
    center = shift * torch.ones(50, dtype=dtype)
    w = (center + torch.randn(50, generator=generator).to(dtype)).requires_grad_()
    square = oneproj.function(
        lambda: (w - center).square().sum() + shift, curvature="convex"
    )
    total = oneproj.function(lambda: (w - center).sum() + shift, curvature="linear")
    constraints = {"square": square <= 2.0 + shift, "total": total <= shift - 1.0}
    projector = Cuts(max_evaluations=15)
    oneproj.project(w, constraints, projector=projector, on_failure="return")


def test_an_infimum_that_is_not_attained_is_no_balance() -> None:
    w = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    risk = oneproj.function(lambda: (-w).exp().sum(), curvature="convex")
    done = oneproj.project(w, {"risk": risk <= 0.0})
    # It underflows to 0: feasible, and the gradient there is 0 and balances nothing.
    assert done.status.ok
    assert done.kkt_residual == 1.0
    assert done.lower_bound is not None
    assert done.lower_bound < 1e3
    assert "underflow" in done.remark


@pytest.mark.filterwarnings("ignore:Rounding decides")  # it does, for some seeds
@pytest.mark.parametrize("seed", range(4))
def test_what_cancels_inside_a_function_refutes_nothing(seed: int) -> None:
    """Pressures in pascal: a hundredth is the rounding of each in float32."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(200, 5, generator=generator)
    base = 101325.0 + 3.0 * torch.randn(200, generator=generator)
    w = torch.randn(5, generator=generator).requires_grad_()
    excess = oneproj.function(
        lambda: (base + x @ w * 3.0).mean() - 101325.0, curvature="linear"
    )
    done = oneproj.project(w, {"excess": excess <= -0.5})
    assert done.residuals["excess"] <= 0
    assert done.gradients < 20


def _wave(w: torch.Tensor) -> torch.Tensor:
    return torch.sin(3.0 * w).sum()


NONCONVEX = {
    "wave": (_wave, [-1.59, -1.56, -1.5, 0.51, 2.55]),
    "wave below -0.9": (lambda w: _wave(w) + 0.9, [-1.74, -1.62, 0.42, 2.52]),
    "concave, from its top": (lambda w: 1.0 - w.square().sum(), [0.0]),
    "two wells": (lambda w: (w**4 - 2.0 * w.square()).sum() + 0.9, [-0.2, 0.02, 0.14]),
    "waves in a bowl": (
        lambda w: (torch.cos(5.0 * w) + 0.1 * w.square()).sum() + 0.5,
        [-1.32, -1.24, 0.02, 1.28],
    ),
}


@pytest.mark.parametrize("boxed", [False, True], ids=["alone", "in a box"])
@pytest.mark.parametrize(
    ("value", "start"),
    [(value, start) for value, starts in NONCONVEX.values() for start in starts],
)
def test_a_wrong_declaration_is_no_proof_of_emptiness(
    value: Callable[[torch.Tensor], torch.Tensor], start: float, *, boxed: bool
) -> None:
    """All of these have feasible points within 3 of the origin."""
    w = torch.tensor([start], dtype=torch.float64, requires_grad=True)
    term = oneproj.function(lambda: value(w), curvature="convex")
    constraints = {"term": term <= 0.0}
    if boxed:
        constraints["box"] = oneproj.sets.Box(-3.0, 3.0).on(w)
    outcome = _outcome(w, constraints)
    assert outcome == "FEASIBLE" or "'term' is declared convex, but" in outcome


def _outcome(w: torch.Tensor, constraints: dict[str, AbstractTerm]) -> str:
    try:
        return oneproj.project(w, constraints, on_failure="return").status.name
    except InvalidProblemError as refused:
        return str(refused)


def test_a_network_that_is_declared_convex_does_not_prove_emptiness() -> None:
    generator = torch.Generator().manual_seed(3)
    doubles = {"generator": generator, "dtype": torch.float64}
    inner, outer = torch.randn(8, 3, **doubles), torch.randn(8, **doubles)
    # tanh is odd: the network takes both signs, so both sides have feasible points.
    for _ in range(20):
        start = 2.0 * torch.randn(3, **doubles)
        w = start.clone().requires_grad_()
        net = oneproj.function(
            lambda w=w: outer @ torch.tanh(inner @ w), curvature="convex"
        )
        outcome = _outcome(w, {"net": net <= -0.5})
        assert outcome == "FEASIBLE" or "'net' is declared convex, but" in outcome


CONVEX = {
    "bowl": lambda w: w.square().sum() + 1.0,
    "cone": lambda w: w.abs().sum() + 0.1,
    "soft maximum": lambda w: torch.logaddexp(3.0 * w + 1.0, -2.0 * w).sum(),
    "kink": lambda w: torch.maximum(w, -1e-3 * w).sum() + 1e-3,
}


@pytest.mark.parametrize("boxed", [False, True], ids=["alone", "in a box"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("start", [-0.9, 0.0, 0.1, 0.5])
@pytest.mark.parametrize("value", CONVEX.values(), ids=CONVEX)
def test_a_true_declaration_still_proves_emptiness(
    value: Callable[[torch.Tensor], torch.Tensor],
    start: float,
    dtype: torch.dtype,
    *,
    boxed: bool,
) -> None:
    w = torch.full((2,), start, dtype=dtype, requires_grad=True)
    constraints = {"c": oneproj.function(lambda: value(w), curvature="convex") <= 0.0}
    if boxed:
        constraints["box"] = oneproj.sets.Box(-3.0, 3.0).on(w)
    done = oneproj.project(w, constraints, on_failure="return")
    assert done.status is oneproj.Status.PROVEN_INFEASIBLE


# --- a feasible end -------------------------------------------------------------------

SHAPES = {"relu": torch.relu, "sine": torch.sin}
Declared = Literal["convex", "linear"]


def _network_risk(
    kind: str, seed: int, curvature: Declared | None
) -> tuple[list[torch.Tensor], AbstractTerm]:
    """The squared error of a small network, which is not convex in its weights."""
    generator = torch.Generator().manual_seed(seed)
    doubles = {"generator": generator, "dtype": torch.float64}
    X, y = torch.randn(40, 4, **doubles), torch.randn(40, **doubles)
    sizes = (6, 4), (6,), (6,)
    W, b, V = (torch.randn(size, **doubles).requires_grad_() for size in sizes)

    def loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return (SHAPES[kind](batch[0] @ W.T + b) @ V - batch[1]).square()

    return [W, b, V], oneproj.mean(loss, (X, y), curvature=curvature)


@pytest.mark.parametrize("declared", ["convex", "linear"])
@pytest.mark.parametrize(
    ("kind", "seed", "share"), [("relu", 13, 0.2), ("relu", 43, 0.3), ("sine", 11, 0.5)]
)
def test_a_wrong_declaration_proves_no_distance(
    kind: str, seed: int, share: float, declared: Declared
) -> None:
    """The answers end up to 10 % farther than a feasible point that exists."""
    weights, risk = _network_risk(kind, seed, None)
    cap = share * risk.value()
    nearer = oneproj.project(weights, {"risk": risk <= cap}).distance
    weights, risk = _network_risk(kind, seed, declared)
    done = oneproj.project(weights, {"risk": risk <= cap})
    assert done.status.ok
    assert done.distance > nearer
    assert done.lower_bound is None, "it would be wrong"
    assert f"'risk' is declared {declared}, but is not" in done.remark
    assert "The lower bound is withdrawn" in str(done)


def test_a_convex_function_that_is_declared_linear_is_named() -> None:
    """It lies above its linearisations, as a linear one does not."""
    w = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    square = oneproj.function(lambda: w.square().sum(), curvature="linear")
    done = oneproj.project(w, {"size": square <= 1.0})
    assert done.status.ok
    assert done.lower_bound is None
    assert "'size' is declared linear, but is not" in done.remark
    assert "such a function equals its linearisations" in done.remark


@pytest.mark.parametrize("boxed", [False, True], ids=["alone", "in a box"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_true_declarations_keep_their_bound(dtype: torch.dtype, *, boxed: bool) -> None:
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(50, 6, generator=generator).to(dtype)
        w = (2.0 * torch.randn(6, generator=generator)).to(dtype).requires_grad_()
        risk = oneproj.mean(
            lambda x, w=w: torch.nn.functional.softplus(x @ w), X, curvature="convex"
        )
        total = oneproj.function(w.sum, curvature="linear")
        constraints = {
            "risk": risk <= 0.8 * risk.value(),
            "total": total <= total.value() - 1.0,
        }
        if boxed:
            constraints["box"] = oneproj.sets.Box(-3.0, 3.0).on(w)
        done = oneproj.project(w, constraints)
        assert done.status.ok
        assert done.lower_bound is not None
        assert done.distance <= 1.01 * done.lower_bound
