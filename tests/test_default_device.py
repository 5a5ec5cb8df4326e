"""Another default device than the parameters' is nobody's business.

``"meta"`` stands for all of them: what is made there by mistake has no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES


@contextmanager
def default(device: str | None) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def make_data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 4, generator=generator)
    y = torch.randint(2, (60,), generator=generator) * 2.0 - 1.0
    return x + 0.5 * y[:, None], y


def problem(w: Tensor, data: tuple[Tensor, Tensor]) -> oneproj.Problem:
    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    risk = oneproj.mean(loss, data=data, weights=[1.0] * 60, curvature="convex")
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    return oneproj.Problem(
        w,
        objective=oneproj.mean(loss, data=data) + 0.01 * size,
        constraints={
            "risk": risk <= 0.6,
            "size": size <= 4.0,
            "both": risk + 0.01 * size <= 0.65,
            "box": oneproj.sets.Box(-1.0, 1.0).on(w),
        },
        radius=10.0,
    )


def same_on_meta(run: Callable[[oneproj.Problem], object]) -> None:
    """The same bits with and without another default device."""
    found = []
    for device in (None, "meta"):
        w = torch.full((4,), -1.5, requires_grad=True)
        data = make_data()
        with default(device):
            found.append((run(problem(w, data)), w.detach().clone()))
    (value, w), (other, v) = found
    assert repr(value) == repr(other)
    assert torch.equal(w, v)


CASES = [(name, "auto") for name in METHODS]
CASES += [("one-projection", oracle) for oracle in ORACLES]


@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.parametrize(("method", "oracle"), CASES)
def test_solve(method: str, oracle: str) -> None:
    def run(built: oneproj.Problem) -> object:
        solution = oneproj.solve(
            built, method=method, oracle=oracle, steps=30, batch_size=8
        )
        return solution.residuals, solution.counts, solution.certificate

    same_on_meta(run)


@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
@pytest.mark.parametrize("method", ["one-projection", "switching-subgradient"])
def test_a_random_iterate_from_a_checkpoint(tmp_path: Path, method: str) -> None:
    def run(built: oneproj.Problem) -> object:
        file = tmp_path / "run.pt"
        file.unlink(missing_ok=True)
        settings = {"method": method, "select": "random", "steps": 60}
        settings |= {"checkpoint": oneproj.Checkpoint(file), "progress": False}
        oneproj.solve(built, callbacks=lambda update: update.update == 13, **settings)
        return oneproj.solve(built, **settings).residuals

    same_on_meta(run)


NAMES = {"closed-form": ["box"], "cuts": ["risk", "size", "both"]}


@pytest.mark.parametrize("projector", NAMES)
def test_project(projector: str) -> None:
    def run(built: oneproj.Problem) -> object:
        constraints = {name: built.constraints[name] for name in NAMES[projector]}
        done = oneproj.project(built.parameters, constraints, projector=projector)
        return done.residuals, done.multipliers

    same_on_meta(run)


def test_project_a_network() -> None:
    found = []
    for device in (None, "meta"):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
        )
        x, y = make_data()
        with default(device):
            loss = oneproj.mean(
                lambda batch, net=net: softplus(-batch[1] * net(batch[0])[:, 0]),
                data=(x, y),
            )
            peak = oneproj.function(lambda net=net, x=x: net(x).square().max())
            caps = {"risk": loss <= 0.5, "peak": peak <= 3.0}
            done = oneproj.project(net.parameters(), caps)
        found.append(repr(done.residuals))
    assert found[0] == found[1]


SETS = {
    "ball": lambda: oneproj.sets.Ball(0.1),
    "l1": lambda: oneproj.sets.L1Ball(0.1),
    "simplex": oneproj.sets.Simplex,
    "half": lambda: oneproj.sets.Halfspace(torch.ones(4, 4, device="cpu"), -9.0),
    "affine": lambda: oneproj.sets.Affine(
        torch.ones(1, 16, device="cpu"), torch.ones(1, device="cpu")
    ),
    "nuclear": lambda: oneproj.sets.NuclearBall(0.5),
    "rank": lambda: oneproj.sets.Rank(1),
}


@pytest.mark.parametrize("name", SETS)
def test_project_onto_a_set(name: str) -> None:
    w = (torch.eye(4) - 0.5).requires_grad_()
    with default("meta"):
        done = oneproj.project(w, {name: SETS[name]().on(w)})
    assert done.residuals[name] <= 0.0


def test_certify() -> None:
    same_on_meta(lambda built: oneproj.certify(built, smooth=True))


def test_the_optimizer_and_the_penalty() -> None:
    def run(built: oneproj.Problem) -> object:
        opt = oneproj.OneProjection(
            built.parameters,
            lr=0.1,
            prox_weight=0.1,
            inner_steps=5,
            outer_steps=4,
            select="random",
            generator=torch.Generator().manual_seed(3),
        )
        penalty, generator = oneproj.Hinge(2.0), torch.Generator().manual_seed(4)
        term = built.constraints["both"]
        for _ in range(20):
            opt.zero_grad()
            penalty(term.batch_value(term.draw(8, generator))).backward()
            opt.step()
        opt.eval()
        return built.residuals()

    same_on_meta(run)
