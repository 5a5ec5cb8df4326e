"""Constraints are checked in float64 where the model computes in less."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj import Measure, OneprojWarning

IN_FLOAT64, REASONS = "residuals in float64", "not checked in float64"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(make: Callable[[], nn.Module]) -> nn.Module:
    """A module in evaluation mode, with weights that this file determines."""
    model, draws = make().eval(), generator()
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.randn(parameter.shape, generator=draws)
            parameter.copy_(0.5 * values / max(1, parameter.shape[-1]) ** 0.5)
    return model


def problem(
    tensors: Any,  # noqa: ANN401 - what Problem takes
    constraint: Any,  # noqa: ANN401 - a term that is compared
) -> oneproj.Problem:
    moving = list(tensors)
    goal = oneproj.function(lambda: sum(p.float().square().sum() for p in moving))
    return oneproj.Problem(moving, goal, {"risk": constraint})


def judged(
    tensors: Any,  # noqa: ANN401 - what Problem takes
    constraint: Any,  # noqa: ANN401 - a term that is compared
) -> Measure:
    return oneproj.certify(problem(tensors, constraint))["feasibility"]


def between(term: Any, exact: float) -> float:  # noqa: ANN401 - a term
    """A bound that its own arithmetic and exact arithmetic see from different sides."""
    own = term.value()
    assert own != exact, "this data must not be computed exactly"
    return (own + exact) / 2


# --- a difference in sign -----------------------------------------------------


CASES = {
    "bfloat16": (torch.bfloat16, 0.0, 1.0),
    "float16": (torch.float16, 0.0, 1.0),
    "float32 with features of 100 +- 0.001": (torch.float32, 100.0, 0.001),
}


def risk(case: str) -> tuple[nn.Module, Any, float]:
    """A model, its mean loss, and what that is in exact arithmetic, nearly."""
    dtype, centre, spread = CASES[case]
    model = network(lambda: nn.Linear(5, 1)).to(dtype)
    draws = generator(1)
    x = (centre + spread * torch.randn(64, 5, generator=draws)).to(dtype)
    y = torch.randn(64, generator=draws).to(dtype)

    def losses(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return (net(batch[0]).squeeze(-1) - batch[1]).square()

    term = oneproj.mean(lambda batch: losses(model, batch), data=(x, y))
    wide = copy.deepcopy(model).double()
    exact = losses(wide, (x.double(), y.double())).mean().item()
    return model, term, exact


@pytest.mark.parametrize("case", CASES)
def test_a_sign_that_float64_changes_is_warned_of(case: str) -> None:
    model, term, exact = risk(case)
    bound = between(term, exact)
    own = term.value() - bound
    with pytest.warns(
        OneprojWarning, match=r"Rounding decides about .*'risk'.*float64"
    ):
        measure = judged(model.parameters(), term <= bound)
    assert measure.value == own
    assert measure.holds is (own <= 0), "feasible is what the model's arithmetic says"
    assert measure.details["residuals"] == {"risk": own}
    wide = measure.details[IN_FLOAT64]["risk"]
    assert wide == pytest.approx(exact - bound, rel=1e-6)
    assert (wide <= 0) != (own <= 0)
    assert measure.details[REASONS] == {}


@pytest.mark.parametrize("case", CASES)
def test_the_same_sign_is_not_warned_of(case: str) -> None:
    model, term, exact = risk(case)
    measure = judged(model.parameters(), term <= exact + abs(exact))
    assert measure.holds
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(-abs(exact), rel=1e-6)


def test_a_constraint_that_only_float64_meets_is_warned_of_too() -> None:
    w = torch.full((3,), 0.1, requires_grad=True)
    exact = w.detach().double().sum().item()
    total = oneproj.function(w.sum)
    assert total.value() > exact
    with pytest.warns(OneprojWarning, match="counts as violated"):
        measure = judged([w], total <= between(total, exact))
    assert measure.holds is False


def test_a_projection_tells_of_a_sign_that_float64_changes() -> None:
    model, term, exact = risk("bfloat16")
    bound = between(term, exact)
    cap = term <= bound if term.value() <= bound else term >= bound
    with pytest.warns(OneprojWarning, match="Rounding decides about .*'risk'"):
        projection = oneproj.project(model.parameters(), {"risk": cap})
    assert projection.status.ok
    assert projection.distance == 0
    assert projection.residuals["risk"] <= 0 < projection.residuals_in_float64["risk"]


def test_a_solution_has_both_values() -> None:
    w = torch.zeros(2, requires_grad=True)
    target = torch.tensor([3.0, 4.0])
    goal = oneproj.function(lambda: (w - target).square().sum())
    size = oneproj.function(lambda: w.square().sum(), curvature="convex") <= 1.0
    found = oneproj.solve(oneproj.Problem(w, goal, {"size": size}), steps=50)
    details = found.certificate["feasibility"].details
    exact = w.detach().double().square().sum().item() - 1.0
    assert details[IN_FLOAT64] == {"size": pytest.approx(exact, rel=1e-9)}
    assert details["residuals"] == found.residuals


# --- everything that a model computes -----------------------------------------


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            4, 2, dim_feedforward=8, batch_first=True
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.reshape(len(x), 2, 4))
        return out


class Recurs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.cell = nn.Linear(4, 4), nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cell(self.first(x.reshape(len(x), 2, 4)))[0]
        return out


class Casts(nn.Module):
    """Casts inside, names dtypes, makes a tensor and writes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = (x.half() * self.weight.to(torch.float16)).to(self.weight.dtype)
            z = torch.zeros(len(x), dtype=torch.float32)
            z += torch.softmax(y, 1, dtype=torch.float32).square().sum(1)
            z = torch.exp(z).bfloat16().float() + y.sum(1).type(y.dtype)
        return z.relu_().to(torch.empty(0, dtype=torch.float16))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.LayerNorm(8)
    ),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 3), nn.GroupNorm(1, 3), nn.GELU()
    ),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 2)),
    "attention": Attends,
    "recurrence": Recurs,
    "casts": Casts,
}


@pytest.mark.parametrize("which", MODELS)
def test_the_value_is_that_of_the_model_in_float64(which: str) -> None:
    model = network(MODELS[which])
    x = torch.randn(32, 8, generator=generator(1))

    def outputs(net: nn.Module, batch: Tensor) -> Tensor:
        return (
            net(batch).square().flatten(1).mean(1) if which != "casts" else net(batch)
        )

    term = oneproj.mean(lambda batch: outputs(model, batch), data=x)
    measure = judged(model.parameters(), term <= 1000.0)
    assert measure.details[REASONS] == {}
    found = measure.details[IN_FLOAT64]["risk"] + 1000.0
    assert found != term.value()
    if which == "casts":
        w, rows = model.weight.detach().double(), x.double()  # type: ignore[operator]
        y = rows * w
        z = torch.softmax(y, 1).square().sum(1).exp()
        exact = (z + y.sum(1)).relu().mean().item()
    else:
        with torch.no_grad():
            exact = outputs(copy.deepcopy(model).double(), x.double()).mean().item()
    assert found == pytest.approx(exact, rel=1e-9)


def test_a_function_that_differentiates_inside_is_computed_in_float64() -> None:
    model = network(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    x = torch.randn(16, 3, generator=generator(1))

    def slopes(net: nn.Module, batch: Tensor) -> Tensor:
        points = batch.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(points).sum(), points, create_graph=True)
        return slope.square().sum(1)

    term = oneproj.mean(lambda batch: slopes(model, batch), data=x)
    measure = judged(model.parameters(), term <= 10.0)
    exact = slopes(copy.deepcopy(model).double(), x.double()).mean().item()
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(exact - 10.0, rel=1e-12)


def test_a_slope_in_the_parameters_is_computed_in_float64() -> None:
    w = torch.tensor([0.3, 0.7], requires_grad=True)

    def slope(p: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(p.exp().sum(), p, create_graph=True)
        return found.sum()

    measure = judged([w], oneproj.function(lambda: slope(w)) <= 10.0)
    exact = slope(w.detach().double().requires_grad_()).item()
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(exact - 10.0, rel=1e-12)


def test_numbers_that_pass_through_numpy_are_wide() -> None:
    w = torch.tensor([0.3, 0.7], requires_grad=True)
    table = torch.rand(2, generator=generator())

    def scaled() -> Tensor:
        factors = torch.tensor(table.numpy() * 3)
        return (w * factors).sum()

    measure = judged([w], oneproj.function(scaled) <= 10.0)
    exact = (w.detach().double() * (table.double() * 3)).sum().item()
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(exact - 10.0, rel=1e-12)


# --- what is the user's -------------------------------------------------------


class Keeps(nn.Module):
    """Writes to a buffer, replaces another, and remembers what it computed."""

    total: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total.copy_(self.weight.detach())
        self.total.mul_(0.7)
        self.last = self.total * 2
        self.seen = self.last.detach()
        rows: Tensor = x * self.last * self.weight
        return rows.sum(1)


def test_what_a_module_writes_is_read_again_and_left_alone() -> None:
    model, x = Keeps(), torch.rand(8, 3, generator=generator())
    term = oneproj.mean(model, data=x)
    measure = judged(model.parameters(), term <= 10.0)
    w = model.weight.detach().double()
    exact = (x.double() * (w * 0.7) * 2 * w).sum(1).mean().item()
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(exact - 10.0, rel=1e-12)
    held = [model.weight, model.total, model.last, model.seen, x]
    assert {tensor.dtype for tensor in held} == {torch.float32}
    assert torch.equal(model.total, 0.7 * model.weight)


def test_tensors_that_a_function_writes_to_keep_their_values() -> None:
    w = torch.tensor([0.1, 0.2], requires_grad=True)
    scratch, flags = torch.zeros(2), []

    def total() -> Tensor:
        torch.mul(w.detach(), 3.0, out=scratch)
        scratch[0] += 0.1
        flags.append(scratch.dtype)
        return (scratch.clone() * w).sum()

    measure = judged([w], oneproj.function(total) <= 10.0)
    wide = w.detach().double()
    exact = (wide * (wide * 3.0 + torch.tensor([0.1, 0.0]).double())).sum().item()
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(exact - 10.0, rel=1e-8)
    assert scratch.dtype == w.dtype == torch.float32
    own = w.detach() * 3.0
    own[0] += 0.1
    assert torch.equal(scratch, own)
    assert torch.float64 in flags


def test_modes_and_gradients_stay() -> None:
    model = network(lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))).train()
    x = torch.randn(8, 3, generator=generator())
    term = oneproj.mean(lambda batch: model(batch).square().mean(1), data=x)
    goal = oneproj.function(lambda: model[0].weight.square().sum())  # type: ignore[union-attr,operator,index]
    constraints = {"risk": term <= 10.0}
    whole = oneproj.Problem(model.parameters(), goal, constraints, model=model)
    state = {name: t.clone() for name, t in model.state_dict().items()}
    details = oneproj.certify(whole)["feasibility"].details
    assert details[IN_FLOAT64]["risk"] == pytest.approx(details["residuals"]["risk"])
    assert all(module.training for module in model.modules())
    assert all(torch.equal(state[name], t) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


# --- what is not checked ------------------------------------------------------


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def scripted(w: Tensor) -> tuple[Callable[[], Tensor], str]:
    twice = torch.jit.script(doubled)
    return lambda: twice(w), "its operations cannot be seen"


def scripted_module(w: Tensor) -> tuple[Callable[[], Tensor], str]:
    layer = torch.jit.script(nn.Linear(1, 1))
    return lambda: w + layer(torch.ones(1, 1)).sum().detach(), "a scripted module"


def noisy(w: Tensor) -> tuple[Callable[[], Tensor], str]:
    draws = generator()

    def noise() -> Tensor:
        draws.manual_seed(0)
        return w + 0.1 * torch.randn(1, generator=draws).sum()

    return noise, "it draws random numbers"


def seeded(w: Tensor) -> tuple[Callable[[], Tensor], str]:
    def noise() -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return w + 0.1 * torch.randn_like(w)

    return noise, "it draws random numbers"


def drawing(w: Tensor) -> tuple[Callable[[], Tensor], str]:
    return lambda: w + 0.0 * torch.randn(1).sum(), "it draws random numbers"


def particular(w: Tensor) -> tuple[Callable[[], Tensor], str]:
    def narrow() -> Tensor:
        if w.dtype != torch.float32:
            message = "only float32 here"
            raise TypeError(message)
        return w * 2.0

    return narrow, "TypeError: only float32 here"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "make", [scripted, scripted_module, noisy, seeded, drawing, particular]
)
def test_what_cannot_be_computed_in_float64_says_so(
    make: Callable[[Tensor], tuple[Callable[[], Tensor], str]],
) -> None:
    w = torch.tensor(0.1, requires_grad=True)
    fn, reason = make(w)
    state = torch.get_rng_state()
    measure = judged([w], oneproj.function(fn) <= 5.0)
    assert make is drawing or torch.equal(state, torch.get_rng_state())
    assert measure.details[IN_FLOAT64] == {}
    assert measure.details[REASONS]["risk"].startswith(reason)
    assert measure.holds


# --- what it costs ------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "passes"), [(torch.float64, 1), (torch.float32, 2)])
def test_one_more_pass_where_the_model_computes_in_less(
    dtype: torch.dtype, passes: int
) -> None:
    w = torch.ones(2, dtype=dtype, requires_grad=True)
    term = oneproj.mean(lambda batch: batch @ w, data=torch.ones(3, 2, dtype=dtype))
    details = judged([w], term <= 5.0).details
    assert details["constraint passes"] == passes
    assert list(details[IN_FLOAT64]) == ["risk"] * (passes - 1)


def test_a_set_is_computed_in_float64_already() -> None:
    w = torch.ones(2, requires_grad=True)
    details = judged([w], oneproj.sets.Ball(2.0).on(w)).details
    assert details["constraint passes"] == 1
    assert details[IN_FLOAT64] == {}


def test_data_is_not_widened_as_a_whole() -> None:
    w = torch.ones(2, requires_grad=True)
    seen: list[tuple[torch.dtype, int]] = []

    def losses(batch: Tensor) -> Tensor:
        seen.append(((batch * 1).dtype, len(batch)))
        return batch @ w

    term = oneproj.mean(losses, data=torch.ones(10, 2), chunk_size=4)
    judged([w], term <= 5.0)
    assert [n for dtype, n in seen if dtype == torch.float64] == [4, 4, 2]


def test_inner_projections_are_not_checked() -> None:
    w = torch.zeros(2, requires_grad=True)
    wide = 0

    def size() -> Tensor:
        nonlocal wide
        wide += (w * 1).dtype == torch.float64
        return w.square().sum()

    goal = oneproj.function(lambda: (w - 3.0).square().sum())
    cap = oneproj.function(size, curvature="convex") <= 1.0
    problem = oneproj.Problem(w, goal, {"size": cap})
    oneproj.solve(problem, method="projected-sgd", steps=5)
    assert wide == 1, "the certificate's"


def test_the_generators_of_the_user_are_not_drawn_from() -> None:
    w = torch.tensor(0.1, requires_grad=True)
    draws, states = generator(), []

    def noisy_total() -> Tensor:
        draws.manual_seed(0)
        states.append(draws.get_state())
        return w + 0.0 * torch.randn(1, generator=draws).sum()

    oneproj.certify(problem([w], oneproj.function(noisy_total) <= 5.0))
    torch.randn(1, generator=(again := generator()))
    assert len(states) > 1
    assert torch.equal(draws.get_state(), again.get_state())


def test_a_compiled_model_is_computed_in_float64() -> None:
    model = network(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    x = torch.randn(16, 3, generator=generator(1))
    compiled = torch.compile(model, backend="eager")
    term = oneproj.mean(lambda batch: compiled(batch).squeeze(1).square(), data=x)
    measure = judged(model.parameters(), term <= 10.0)
    with torch.no_grad():
        wide = copy.deepcopy(model).double()(x.double()).square().mean().item()
    assert measure.details[REASONS] == {}
    assert measure.details[IN_FLOAT64]["risk"] == pytest.approx(wide - 10.0, rel=1e-12)
