"""Models with two modes, compiled models, and parameters of several precisions."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from oneproj import Update
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES

Parts = tuple[oneproj.Problem, Callable[[], float]]


def network(*middle: nn.Module) -> nn.Sequential:
    fill = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 6), *middle, nn.Linear(6, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=fill))
    return model


def build(model: nn.Module, called: nn.Module | None = None, cap: float = 0.5) -> Parts:
    """A risk capped on a second data set, and the residual as its user computes it."""
    fill, call = torch.Generator().manual_seed(4), model if called is None else called
    x, source = torch.randn(2, 300, 5, generator=fill)
    y = torch.sign(x[:, 0] + 0.3 * x[:, 1])
    z = torch.sign(source[:, 0] - 0.3 * source[:, 2])

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * call(batch[0])[:, 0].float())

    # With chunks of their own: else the constraint would be seen as a whole.
    risk = oneproj.mean(loss, data=(source, z), chunk_size=4095)
    problem = oneproj.Problem(
        model.parameters(),
        objective=oneproj.mean(loss, data=(x, y)),
        constraints={"source": risk <= cap},
        radius=30.0,
        model=call,
    )

    def residual() -> float:
        model.eval()
        with torch.no_grad():
            return float(loss((source, z)).double().mean()) - cap

    return problem, residual


TWO_MODES = {
    "dropout": [nn.Tanh, lambda: nn.Dropout(0.3)],
    "batch norm": [lambda: nn.BatchNorm1d(6), nn.Tanh],
}


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("kind", TWO_MODES)
def test_the_answer_is_judged_as_the_user_will_use_it(kind: str, oracle: str) -> None:
    model = network(*(make() for make in TWO_MODES[kind]))
    problem, residual = build(model)
    first = problem.objective.value()
    solution = oneproj.solve(problem, steps=60, oracle=oracle, batch_size=32)
    assert model.training, "the mode is given back"
    assert solution.feasible
    assert solution.objective < first
    assert solution.residuals == problem.residuals(), "the same value at every look"
    assert residual() == pytest.approx(solution.residuals["source"], abs=1e-6)
    assert residual() <= 0


@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_sees_minibatches_in_training_and_all_data_in_evaluation(
    method: str,
) -> None:
    model = network(nn.Tanh())
    seen: set[tuple[bool, int]] = set()
    model.register_forward_hook(
        lambda module, inputs, _: seen.add((module.training, len(inputs[0])))
    )
    problem, _ = build(model)
    oneproj.solve(problem, method=method, steps=12, batch_size=7)
    probe, full = 3, 300
    # SLSQP takes the parameters' units from every third example, not from all.
    part = {(False, full // 3)} if method in ("slsqp", "auto") else {(True, 7)}
    if method == "one-projection":
        part |= {(False, 7)}  # the first step is tried on minibatches
    assert seen == {(False, probe), (False, full)} | part


def test_a_sampled_anchor_is_seen_in_evaluation() -> None:
    model = network(nn.Tanh())
    seen: set[tuple[bool, int]] = set()
    model.register_forward_hook(
        lambda module, inputs, _: seen.add((module.training, len(inputs[0])))
    )
    problem, _ = build(model)
    oneproj.solve(problem, steps=12, batch_size=7, anchor_size=100)
    assert (False, 100) in seen
    assert (True, 100) not in seen


def test_the_projection_leaves_the_running_statistics() -> None:
    model = network(nn.BatchNorm1d(6), nn.Tanh())
    problem, _ = build(model)
    kept: dict[str, Tensor] = {}

    def last(update: Update) -> None:
        kept.update({name: b.clone() for name, b in model.named_buffers()})
        del update

    start = {name: b.clone() for name, b in model.named_buffers()}
    oneproj.solve(problem, steps=20, callbacks=last)
    after = dict(model.named_buffers())
    assert all(torch.equal(after[name], kept[name]) for name in kept)
    assert not torch.equal(after["1.running_mean"], start["1.running_mean"])


def test_batch_norm_gathers_statistics_in_the_first_half_only() -> None:
    model = network(nn.BatchNorm1d(6), nn.Tanh())
    problem, _ = build(model)
    means: list[Tensor] = []

    def look(update: Update) -> None:
        del update
        model.eval()
        means.append(model[1].running_mean.clone())
        model.train()  # as who evaluates in a callback does

    oneproj.solve(problem, steps=20, callbacks=look)
    moved = [not torch.equal(a, b) for a, b in pairwise(means)]
    assert moved == [True] * 9 + [False] * 10


@pytest.mark.parametrize("method", ["slsqp", "auto"])
def test_slsqp_gathers_no_statistics(method: str) -> None:
    model = network(nn.BatchNorm1d(6), nn.Tanh())
    problem, residual = build(model)
    start = {name: b.clone() for name, b in model.named_buffers()}
    solution = oneproj.solve(problem, method=method, steps=20)
    assert solution.settings["method"] == "slsqp"
    assert all(torch.equal(b, start[name]) for name, b in model.named_buffers())
    assert residual() <= 0


@pytest.mark.parametrize("saved", [False, True])
def test_half_of_a_time_budget_ends_the_statistics_unless_the_run_may_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, saved: bool
) -> None:
    model = network(nn.BatchNorm1d(6), nn.Tanh())
    problem, _ = build(model)
    means: list[Tensor] = []  # one a second
    monkeypatch.setattr(time, "monotonic", lambda: float(len(means)))
    solution = oneproj.solve(
        problem,
        steps=500,
        seconds=20.0,
        callbacks=lambda _: means.append(model[1].running_mean.clone()),
        checkpoint=tmp_path / "run.pt" if saved else None,
    )
    assert solution.status is oneproj.Status.OUT_OF_TIME
    moved = [not torch.equal(a, b) for a, b in pairwise(means)]
    assert moved == [True] * 10 + [saved] * 9


def test_batch_norm_does_not_keep_objective_and_constraint_apart() -> None:
    # Each class has minibatches of its own: what these are normalised by hides it.
    torch.manual_seed(0)
    x = torch.randn(2000, 6)
    y = torch.sign(x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(2000))
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
    )

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * model(batch[0])[:, 0])

    of = {sign: oneproj.mean(loss, (x[y == sign], y[y == sign])) for sign in (-1, 1)}
    problem = oneproj.Problem(
        model.parameters(), of[-1], {"positives": of[1] <= 0.4}, model=model
    )
    # 0.16 without the norm, 0.84 where all updates gather statistics
    solution = oneproj.solve(problem, steps=300, batch_size=500)
    assert solution.objective < 0.5


def test_every_module_gets_its_own_mode_back_also_after_an_error() -> None:
    model = network(nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3))
    model[1].eval()  # frozen statistics, as in fine-tuning
    modes = [m.training for m in model.modules()]
    problem, _ = build(model)
    assert [m.training for m in model.modules()] == modes
    oneproj.solve(problem, steps=12)
    assert [m.training for m in model.modules()] == modes

    def fail(module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        if not module.training:
            raise ZeroDivisionError(inputs)

    model.register_forward_hook(fail)
    with pytest.raises(ZeroDivisionError):
        problem.residuals()
    assert [m.training for m in model.modules()] == modes


def test_without_a_model_no_mode_is_touched() -> None:
    model = network(nn.Tanh())
    seen: set[bool] = set()
    model.register_forward_hook(lambda module, *_: seen.add(module.training))
    problem = build(model)[0]
    plain = oneproj.Problem(
        model.parameters(),
        oneproj.function(lambda: model(torch.ones(1, 5)).square().sum()),
        {},
    )
    seen.clear()
    oneproj.solve(plain, steps=12)
    assert seen == {True}
    assert problem.model is model
    assert plain.model is None


def test_a_model_is_a_module() -> None:
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(oneproj.InvalidProblemError, match=r"torch\.nn\.Module or None"):
        oneproj.Problem(w, oneproj.function(w.sum), {}, model=lambda: w)


@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.parametrize("method", METHODS)
def test_a_compiled_model_trains_as_the_plain_one(method: str) -> None:
    answers = []
    for compiled in (False, True):
        model = network(nn.BatchNorm1d(6), nn.Tanh())
        call = torch.compile(model, backend="eager") if compiled else model
        problem, residual = build(model, call)
        oneproj.solve(problem, method=method, steps=8, batch_size=16)
        assert model.training
        assert residual() <= 0
        answers.append([p.detach().clone() for p in model.parameters()])
    for plain, other in zip(*answers, strict=True):
        torch.testing.assert_close(plain, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_parameters_of_several_precisions(narrow: torch.dtype, oracle: str) -> None:
    class Mixed(nn.Module):
        """A narrow body, a float32 head."""

        def __init__(self) -> None:
            super().__init__()
            inner = network(nn.Tanh())
            self.body, self.head = inner[:2].to(narrow), inner[2]

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x.to(narrow)).float())

    model = Mixed()
    problem, residual = build(model, cap=0.6)
    first = problem.objective.value()
    solution = oneproj.solve(problem, steps=60, oracle=oracle, batch_size=32)
    assert solution.feasible
    assert residual() <= 0
    assert solution.objective < first
    assert {p.dtype for p in model.parameters()} == {narrow, torch.float32}
