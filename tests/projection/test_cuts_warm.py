"""A warm projector: the same answers from fewer gradients, and no mixed-up pasts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import NonFiniteError
from oneproj.problem.problem import named_constraints
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.closed_form import ClosedForm
from oneproj.projection.cuts import Cuts
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import distance

DIMENSION, CAP = 12, 0.35
STARTS = 15


def risks(kind: str) -> tuple[Tensor, dict[str, AbstractTerm]]:
    """Two risk caps on one linear score, with kinks or without."""
    generator = torch.Generator().manual_seed(1)
    w = torch.zeros(DIMENSION, dtype=torch.float64, requires_grad=True)
    stated = {}
    for j in range(2):
        x = torch.randn(60, DIMENSION, generator=generator, dtype=torch.float64)
        x[:, 0] += 2.0

        def losses(batch: Tensor) -> Tensor:
            scores = batch @ w
            if kind == "hinge":
                return torch.clamp(1.0 - scores, min=0.0)
            return torch.nn.functional.softplus(-scores)

        risk = oneproj.mean(losses, data=x, curvature="convex")
        stated[f"cap {j}"] = risk <= CAP
    return w, named_constraints(stated)


def wander(start: int, step: float = 0.02) -> Tensor:
    """Starts that follow each other at a short distance, outside the caps."""
    generator = torch.Generator().manual_seed(2)
    moves = torch.randn(STARTS, DIMENSION, generator=generator, dtype=torch.float64)
    return step * moves[: start + 1].sum(dim=0)


def follow(projector: Cuts, kind: str) -> list[tuple[Projection, Tensor]]:
    w, constraints = risks(kind)
    found = []
    for k in range(STARTS):
        with torch.no_grad():
            w.copy_(wander(k))
        found.append((projector.project([w], constraints), w.detach().clone()))
    return found


# Smooth: a margin of eps^(3/4) in the residual is its root in the position, and the
# curvature that a cold start learns (159 gradients) is worth what kept cuts are (163).
@pytest.mark.parametrize(
    ("kind", "gain", "near"), [("hinge", 1.4, 1e-12), ("logistic", 0.95, 2e-6)]
)
def test_it_finds_the_same_points_with_fewer_gradients(
    kind: str, gain: float, near: float
) -> None:
    cold, warm = (
        follow(Cuts(tolerance=0.0), kind),
        follow(Cuts(tolerance=0.0).warm(), kind),
    )
    for (exact, point), (done, other) in zip(cold, warm, strict=True):
        assert done.status is Status.FEASIBLE
        assert max(done.residuals.values()) <= 0 < max(done.residuals_before.values())
        assert done.distance == pytest.approx(exact.distance, rel=1e-9)
        assert distance([point], [other]) <= near
        assert done.lower_bound is not None
        assert done.distance * (1 - 1e-7) <= done.lower_bound <= done.distance
        assert done.multipliers == pytest.approx(exact.multipliers, abs=1e-5)
    used = [sum(done.gradients for done, _ in run) for run in (cold, warm)]
    assert used[1] * gain <= used[0]


def test_the_projector_itself_stays_cold() -> None:
    projector = Cuts(tolerance=0.0)
    warm = projector.warm()
    assert warm is not projector
    again = [follow(projector, "hinge"), follow(warm, "hinge")]
    assert [d.gradients for d, _ in follow(projector, "hinge")] == [
        d.gradients for d, _ in again[0]
    ]
    assert again[1][1][0].gradients < again[0][1][0].gradients


def test_settings_are_kept() -> None:
    # With a budget of 2 exactness is given up, at once and ever after.
    done, _ = follow(Cuts(max_evaluations=2).warm(), "logistic")[0]
    assert done.gradients <= 4


def disc_of(*, at: float) -> tuple[Tensor, dict[str, AbstractTerm]]:
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    return w, named_constraints({"disc": size <= at})


def test_other_constraints_begin_anew() -> None:
    """The cuts of the small disc would be wrong for the large one."""
    warm = Cuts(tolerance=0.0).warm()
    w, small = disc_of(at=1.0)
    warm.project([w], small)
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    for large in (  # another mapping, another name, another set of names
        named_constraints({"disc": size <= 4.0}),
        named_constraints({"other": size <= 4.0}),
        named_constraints({"disc": size <= 4.0, "more": size <= 9.0}),
    ):
        with torch.no_grad():
            w.copy_(torch.tensor([3.0, 4.0]))
        done = warm.project([w], large)
        assert done.distance == pytest.approx(3.0, rel=1e-9)
        assert done.lower_bound == pytest.approx(3.0, rel=1e-7)


def test_other_parameters_begin_anew() -> None:
    warm = Cuts(tolerance=0.0).warm()
    w, disc = disc_of(at=1.0)
    first = warm.project([w], disc)
    free = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        w.copy_(torch.tensor([3.0, 4.0]))
    done = warm.project([w, free], disc)
    assert done.distance == pytest.approx(4.0, rel=1e-9)
    assert done.gradients == first.gradients


def test_the_same_objects_in_another_list_go_on() -> None:
    warm = Cuts(tolerance=0.0).warm()
    w, disc = disc_of(at=1.0)
    first = warm.project([w], disc)
    with torch.no_grad():
        w.copy_(torch.tensor([3.0, 4.01], dtype=w.dtype))
    done = warm.project((w,), dict(disc))
    assert done.gradients < first.gradients
    assert done.distance == pytest.approx(math.hypot(3.0, 4.01) - 1.0, rel=1e-9)


def test_a_feasible_start_between_does_not_end_the_past() -> None:
    warm = Cuts(tolerance=0.0).warm()
    w, disc = disc_of(at=1.0)
    first = warm.project([w], disc)
    assert warm.project([w], disc).gradients == 1
    with torch.no_grad():
        w.copy_(torch.tensor([3.0, 4.01], dtype=w.dtype))
    assert warm.project([w], disc).gradients < first.gradients


def test_an_error_ends_the_past() -> None:
    """Whatever was half done when NaN came is not the start of the next."""
    w, disc = disc_of(at=1.0)
    broken = [False]

    def size() -> Tensor:
        return w.square().sum() * (math.nan if broken[0] else 1.0)

    disc = named_constraints(
        {"disc": oneproj.function(size, curvature="convex") <= 1.0}
    )
    warm = Cuts(tolerance=0.0).warm()
    first = warm.project([w], disc)
    for nan, start in ((True, 5.0), (False, 4.0)):
        broken[0] = nan
        with torch.no_grad():
            w.copy_(torch.tensor([3.0, start]))
        if nan:
            with pytest.raises(NonFiniteError):
                warm.project([w], disc)
        else:
            done = warm.project([w], disc)
            assert done.gradients == first.gradients
            assert done.distance == pytest.approx(4.0, rel=1e-9)


def test_projectors_that_carry_nothing_are_warm_as_they_are() -> None:
    projector = ClosedForm()
    assert projector.warm() is projector


def test_project_goes_on_from_the_past_too() -> None:
    """It names the constraints anew with every call, which makes copies of them."""
    warm = Cuts(tolerance=0.0).warm()
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    disc, larger = {"disc": size <= 1.0}, {"disc": size <= 4.0}
    used = []
    for stated in (disc, disc, larger):
        with torch.no_grad():
            w.copy_(torch.tensor([3.0, 4.0]))
        done = oneproj.project(w, stated, projector=warm)
        assert done.distance == pytest.approx(4.0 if stated is disc else 3.0, rel=1e-9)
        used.append(done.gradients)
    assert used[1] < used[0]
    assert used[2] > used[1]
