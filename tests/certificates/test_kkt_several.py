"""Several sets, functions and the ball at once: what each of them holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError
from oneproj.sets import Affine, Ball, Box, Simplex

DTYPES = [torch.float32, torch.float64]
ACCURACY = {torch.float32: 2e-5, torch.float64: 1e-11}


def kkt_residual(problem: oneproj.Problem) -> oneproj.Measure:
    return oneproj.certify(problem)["KKT residual"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sets_on_several_tensors_a_function_and_the_ball(dtype: torch.dtype) -> None:
    u = torch.tensor([1.0, 0.0, 0.5], dtype=dtype, requires_grad=True)
    v = torch.tensor([0.0, 1.0], dtype=dtype, requires_grad=True)
    w = torch.tensor([2.0, 0.0], dtype=dtype, requires_grad=True)
    n_u, n_v = torch.tensor([2.0, -1.0, 0.0]), torch.tensor([-4.0, 3.0])
    # On w the function takes (1, 1), and the ball of radius 2.5 takes 0.5 x / |x|.
    radius = float(torch.cat([u, v, w]).detach().double().norm())
    share = 0.5 / radius

    def objective() -> Tensor:
        held = (n_u.to(u) * u).sum() + (n_v.to(v) * v).sum() + w.sum()
        ball = sum((p.detach() * p).sum() for p in (u, v, w))
        return -(held + share * ball)

    problem = oneproj.Problem(
        [u, v, w],
        oneproj.function(objective),
        {
            "box": Box(0.0, 1.0).on(u),
            "simplex": Simplex().on(v),
            "total": oneproj.function(w.sum) <= 2.0,
        },
        radius=radius,
    )
    measure = kkt_residual(problem)
    assert measure.details["relative"] <= 2 * ACCURACY[dtype]
    assert measure.details["complementarity"] <= 1e-4
    assert measure.details["multipliers"]["total"] == pytest.approx(1.0, abs=1e-4)
    assert measure.details["ball multiplier"] == pytest.approx(0.5, abs=1e-4)
    assert measure.details["multipliers"]["box"] == pytest.approx(5**0.5, rel=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_sets_on_one_tensor(dtype: torch.dtype) -> None:
    # min -w_1 - 3 w_2 over |w| <= 1 and w_2 <= 0.6: (0.8, 0.6), normals w and e_2.
    # (1, 3) = 1.25 (0.8, 0.6) + 2.25 e_2.
    w = torch.tensor([0.8, 0.6], dtype=dtype, requires_grad=True)
    slope = torch.tensor([1.0, 3.0], dtype=dtype)
    cap = torch.tensor([5.0, 0.6], dtype=dtype)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: -(slope * w).sum()),
        {"disc": Ball(1.0).on(w), "box": Box(None, cap).on(w)},
    )
    measure = kkt_residual(problem)
    assert measure.details["relative"] <= 10 * ACCURACY[dtype]
    multipliers = measure.details["multipliers"]
    assert multipliers == pytest.approx({"disc": 1.25, "box": 2.25}, rel=1e-4)


def test_many_faces_and_equations_at_once() -> None:
    # Each set alone sees a mixture of what both must share: 150 bounds, 3 equations.
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(300, generator=generator, dtype=torch.float64)
    x[:150] = (x[:150] > 0.5).double()
    A = torch.randn(3, 300, generator=generator, dtype=torch.float64)
    bounds = torch.rand(300, generator=generator, dtype=torch.float64)
    bounds *= torch.where(x > 0.5, 1.0, -1.0)
    bounds[150:] = 0.0
    equations = A.mT @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    w = x.clone().requires_grad_()
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: -((bounds + equations) * w).sum()),
        {"box": Box(0.0, 1.0).on(w), "affine": Affine(A, A @ x).on(w)},
    )
    measure = kkt_residual(problem)
    assert measure.details["relative"] <= 1e-7
    assert measure.details["multipliers"] == pytest.approx(
        {"box": float(bounds.norm()), "affine": float(equations.norm())}, rel=1e-5
    )
    assert measure.details["set projections"] <= 200


def test_a_violated_set_is_named_with_its_price() -> None:
    w = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: -(w * torch.tensor([1.0, 2.0])).sum()),
        {"box": Box(0.0, 1.0).on(w)},
    )
    measure = kkt_residual(problem)
    # From outside the normal (1, 2) is that of x - P(x) too.
    assert measure.details["relative"] <= 1e-9
    assert measure.details["complementarity"] == pytest.approx(5.0, rel=1e-3)


def test_a_set_out_of_reach_is_left_alone() -> None:
    w = torch.tensor([0.5, 0.5], dtype=torch.float64, requires_grad=True)
    box = {"box": Box(0.0, 1.0).on(w)}
    measure = kkt_residual(oneproj.Problem(w, oneproj.function(w.sum), box))
    assert measure.details["relative"] == pytest.approx(1.0)
    assert measure.details["multipliers"] == {"box": 0.0}
    assert measure.details["set projections"] == 0


def test_a_set_on_what_is_no_parameter_is_refused() -> None:
    w = torch.zeros(2, requires_grad=True)
    other = torch.zeros(2, requires_grad=True)
    with pytest.raises(InvalidProblemError):
        oneproj.Problem(w, oneproj.function(w.sum), {"box": Box(0.0, 1.0).on(other)})
