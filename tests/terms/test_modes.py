"""Modules with two modes are caught when they train and nobody switches them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj.terms.modes import watching_modes

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
ADVICE = r"model=model.*model\.eval\(\) first"


def terms(model: nn.Module) -> tuple[oneproj.terms.expressions.AbstractExpression, ...]:
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


def test_so_it_is_before_a_projection() -> None:
    model = RESTLESS["Dropout"]()
    constraints = {"risk": terms(model)[1] <= 9.0}
    with pytest.warns(oneproj.OneprojWarning, match=ADVICE) as caught:
        oneproj.project(model.parameters(), constraints)
    assert caught[0].filename == __file__


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
    with pytest.raises(KeyError), watching_modes() as seen:
        raise KeyError
    model(X)
    assert seen == set()


def test_a_compiled_model_is_seen_as_well() -> None:
    model = torch.compile(RESTLESS["Dropout"](), backend="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build(model)
    assert {type(warning.message) for warning in caught} == {oneproj.OneprojWarning}


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
