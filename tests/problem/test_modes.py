"""Modules with two modes are caught when they train and nobody switches them."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj.problem.modes import evaluating_when_called

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def terms(
    model: nn.Module,
) -> tuple[oneproj.problem.terms.AbstractExpression, ...]:
    def loss(batch: Tensor) -> Tensor:
        made = model(batch)
        return (made[0] if isinstance(made, tuple) else made).square().sum(1)

    return oneproj.mean(loss, data=X), oneproj.mean(loss, data=X[:4])


def build(model: nn.Module, given: nn.Module | None = None) -> oneproj.Problem:
    objective, risk = terms(model)
    constraints = {"risk": risk <= 9.0}
    return oneproj.Problem(model.parameters(), objective, constraints, model=given)


RESTLESS = {
    "Dropout": lambda: nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)),
    "BatchNorm1d": lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)),
    "GRU": lambda: nn.GRU(4, 2, num_layers=2, dropout=0.5),
    "InstanceNorm1d": lambda: nn.Sequential(
        nn.Linear(4, 8),
        nn.Unflatten(1, (2, 4)),
        nn.InstanceNorm1d(2, track_running_stats=True),
        nn.Flatten(),
    ),
    "SpectralNorm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2)),
    "BatchNorm1d and Dropout": lambda: nn.Sequential(
        nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)
    ),
}
CALM = {
    "no modes": lambda: nn.Linear(4, 2),
    "layer norm": lambda: nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2)),
    "dropout of nothing": lambda: nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.0)),
    "evaluating": lambda: nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)).eval(),
}


@pytest.mark.parametrize("kind", RESTLESS)
def test_training_without_a_model_is_warned_of_where_the_user_called(kind: str) -> None:
    with pytest.warns(oneproj.OneprojWarning, match=f"^{kind} in training") as caught:
        build(RESTLESS[kind]())
    assert {warning.filename for warning in caught} == {__file__}
    assert len({str(warning.message) for warning in caught}) == 1
    assert "model=model" in str(caught[0].message)


def test_so_it_is_of_the_older_spectral_norm() -> None:
    model = nn.utils.spectral_norm(nn.Linear(4, 2))
    with pytest.warns(oneproj.OneprojWarning, match=r"^SpectralNorm in training"):
        build(model)


def gathered(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("kind", RESTLESS)
def test_a_projection_judges_what_trains_in_evaluation_mode(kind: str) -> None:
    torch.manual_seed(0)  # of the initial weights
    model = RESTLESS[kind]()
    for _ in range(20):
        model(3.0 * X + 1.0)  # statistics that are not those of X
    constraint = terms(model)[1] <= 0.05
    kept = gathered(model)
    match = f"^{kind} in training mode.*judged in evaluation mode"
    with pytest.warns(oneproj.OneprojWarning, match=match) as caught:
        done = oneproj.project(model.parameters(), {"risk": constraint})
    assert caught[0].filename == __file__
    assert len(caught) == 1
    assert done.residuals_before["risk"] > 0 >= done.residuals["risk"]
    assert all(torch.equal(b, kept[name]) for name, b in gathered(model).items())
    assert all(module.training for module in model.modules())
    assert constraint.named("risk", model.eval()).value() <= 0


@pytest.mark.parametrize("kind", RESTLESS)
def test_neither_a_problem_nor_a_projection_that_fails_moves_statistics(
    kind: str,
) -> None:
    model = RESTLESS[kind]()
    kept = gathered(model)
    with pytest.warns(oneproj.OneprojWarning, match="in training mode"):
        build(model)
    impossible = {"risk": terms(model)[1] <= -1.0}
    failed = pytest.raises(oneproj.InfeasibleError)
    with failed, pytest.warns(oneproj.OneprojWarning, match="in training mode"):
        oneproj.project(model.parameters(), impossible)
    assert all(torch.equal(b, kept[name]) for name, b in gathered(model).items())
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("kind", RESTLESS)
def test_a_model_that_is_given_needs_no_warning(kind: str) -> None:
    model = RESTLESS[kind]()
    build(model, given=model)  # a warning would be an error
    assert model.training


@pytest.mark.parametrize("kind", RESTLESS)
@pytest.mark.parametrize("given", [nn.ReLU(), nn.Dropout(0.5)], ids=str)
def test_another_model_than_the_one_that_is_called_is_noticed(
    kind: str, given: nn.Module
) -> None:
    with pytest.warns(oneproj.OneprojWarning, match=f"^{kind} in training"):
        build(RESTLESS[kind](), given=given)


def test_a_part_of_the_model_is_too_little_and_more_than_it_is_enough() -> None:
    model = RESTLESS["BatchNorm1d"]()
    build(model, given=nn.ModuleList([nn.Dropout(0.5), model]))  # no warning
    with pytest.warns(oneproj.OneprojWarning, match="BatchNorm1d in training"):
        build(model, given=model[0])


@pytest.mark.parametrize("kind", CALM)
def test_what_has_one_mode_or_evaluates_needs_no_warning(kind: str) -> None:
    build(CALM[kind]())  # a warning would be an error


def test_the_watch_ends_with_its_block_also_after_an_error() -> None:
    model = RESTLESS["Dropout"]()
    with pytest.raises(RuntimeError), evaluating_when_called() as found:
        model(X[:, :2])  # its first layer refuses that shape
    assert found == []
    with pytest.raises(RuntimeError), evaluating_when_called() as found:
        model(X).backward()  # a vector
    assert found == [model[1]]
    assert model[1].training
    model(X)
    assert found == [model[1]]


def test_a_compiled_model_is_seen_as_well() -> None:
    inner = RESTLESS["BatchNorm1d and Dropout"]()
    model = torch.compile(inner, backend="eager")
    kept = gathered(inner)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build(model)
        oneproj.project(model.parameters(), {"risk": terms(model)[1] <= 0.05})
    assert {type(warning.message) for warning in caught} == {oneproj.OneprojWarning}
    assert all(torch.equal(b, kept[name]) for name, b in gathered(inner).items())
    assert all(module.training for module in inner.modules())


def test_a_compiled_model_that_is_given_is_compiled_once() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compiler.reset()  # all models share torch's limit, also those of other tests
    model = torch.compile(nn.Linear(4, 2).eval(), backend=backend)
    build(model, given=model)
    model(X[:3])
    assert len(graphs) == 1


def test_modules_of_other_threads_keep_their_mode() -> None:
    other = nn.Dropout(0.5)
    seen: list[bool] = []

    def train() -> None:
        other(X)
        seen.append(other.training)

    with evaluating_when_called() as found:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert seen == [True]
    assert found == []


def test_a_term_that_trains_its_model_is_judged_in_evaluation_mode_too() -> None:
    torch.manual_seed(0)  # of the initial weights
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))

    def size() -> Tensor:
        model.train()
        return model(X).square().mean()

    with pytest.warns(oneproj.OneprojWarning, match="^Dropout in training mode"):
        oneproj.project(model.parameters(), {"a": oneproj.function(size) >= 1.0})
    assert model.training
    assert model.eval()(X).square().mean().item() >= 1.0


@pytest.mark.parametrize("kind", ["Dropout", "BatchNorm1d"])
def test_a_value_is_that_of_evaluation_mode(kind: str) -> None:
    """Also where the model trains, whose statistics and mode do not change."""
    model = RESTLESS[kind]()
    objective, risk = terms(model)
    gap = objective - risk
    model.eval()
    expected = [term.value() for term in (objective, gap, risk <= 1.0)]
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    assert [term.value() for term in (objective, gap, risk <= 1.0)] == expected
    assert all(module.training for module in model.modules())
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, before[name], rtol=0, atol=0)
