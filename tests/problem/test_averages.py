"""Averages over data: values, gradients, minibatches, weights, chunks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

import oneproj
from oneproj import InvalidProblemError, function, mean
from oneproj.problem import AbstractTerm

examples = settings(derandomize=True, deadline=None, max_examples=40)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def network(seed: int = 0) -> list[Tensor]:
    return [(0.5 * normal(*s, seed=seed + k)).requires_grad_() for k, s in SHAPES]


SHAPES = tuple(enumerate(((3, 4), (4,), (4,))))
X, Y = normal(23, 3, seed=7), normal(23, seed=8)


def losses(parameters: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    a, b, c = parameters
    return (torch.tanh(x @ a + b) @ c - y).square()


def gradients(value: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(value, parameters))


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


# --- the full value and its gradient ------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@examples
@given(seed=st.integers(0, 1000), chunk=st.integers(1, 30))
def test_chunks_add_up_to_autograd_on_all_data_at_once(
    seed: int, chunk: int, *, weighted: bool
) -> None:
    p = network(seed)
    weights = normal(23, seed=seed) if weighted else None
    term = mean(
        lambda batch: losses(p, *batch), (X, Y), weights=weights, chunk_size=chunk
    )
    whole = losses(p, X, Y)
    expected = (whole if weights is None else weights * whole).mean()

    value, gradient = term.value_and_gradient(p)

    assert value == term.value() == pytest.approx(expected.item(), rel=1e-13)
    assert_close(gradient, gradients(expected, p))
    assert all(t.grad is None for t in p), "full gradients do not touch .grad"


CHUNKS = [100, 777, 4096, 10**9]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_float32_values_are_added_in_float64(chunk: int) -> None:
    # Exact in float64; in float32 the sum passes 1.5e10 and loses every quarter.
    x = torch.cat([torch.full((15_000,), 1e6 + 0.25), torch.full((15_000,), -1e6)])
    w = torch.ones((), requires_grad=True)
    term = mean(lambda batch: w * batch, x, chunk_size=chunk)
    assert term.value() == 0.125
    assert term.value_and_gradient([w])[0] == 0.125


def test_float32_gradients_of_chunks_are_added_in_float64() -> None:
    # Each chunk's gradient, x_i / 2^12, is exact in float32; their float32 sum is not.
    x = torch.cat([torch.full((2048,), 1e6 + 0.25), torch.full((2048,), -1e6)])
    w = torch.ones((), requires_grad=True)
    term = mean(lambda batch: w * batch, x, chunk_size=1)
    (gradient,) = term.value_and_gradient([w])[1]
    assert gradient.item() == 0.125
    assert gradient.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_gradient_has_the_dtype_and_shape_of_its_parameter(
    dtype: torch.dtype,
) -> None:
    w = torch.ones(2, 1, dtype=dtype, requires_grad=True)
    for term in (
        mean(lambda b: (b @ w).squeeze(1), torch.ones(3, 2, dtype=dtype)),
        function(w.sum) <= 1.0,
    ):
        (gradient,) = term.value_and_gradient([w])[1]
        assert gradient.dtype == dtype
        assert torch.equal(gradient, torch.ones_like(w))


def test_full_evaluation_needs_no_grad_mode_of_the_caller() -> None:
    p = network()
    for term in (
        mean(lambda b: losses(p, *b), (X, Y)),
        function(lambda: p[0].square().sum()),
        function(lambda: p[0].square().sum()) >= 1.0,
    ):
        expected = term.value_and_gradient(p)
        with torch.no_grad():
            value, gradient = term.value_and_gradient(p)
        assert value == expected[0]
        assert_close(gradient, expected[1])


def test_a_full_value_builds_no_graph() -> None:
    seen: list[bool] = []
    w = torch.ones((), requires_grad=True)

    def fn(batch: Tensor) -> Tensor:
        values = w * batch
        seen.append(values.requires_grad)
        return values

    mean(fn, torch.ones(3)).value()
    function(lambda: fn(torch.ones(()))).value()
    assert seen == [False, False]


def test_parameters_that_a_term_does_not_reach_get_a_zero() -> None:
    w, other = (torch.ones(2, requires_grad=True) for _ in range(2))
    for term in (
        mean(lambda b: b @ w, torch.ones(3, 2)),
        function(w.sum),
    ):
        gradient = term.value_and_gradient([w, other])[1]
        assert gradient[0].tolist() == [1.0, 1.0]
        assert gradient[1].tolist() == [0.0, 0.0]


def test_a_chunk_that_reaches_no_parameter_adds_nothing() -> None:
    w = torch.ones((), requires_grad=True)
    term = mean(
        lambda b: w * b if b[0] > 0 else b, torch.tensor([-1.0, 3.0]), chunk_size=1
    )
    value, (gradient,) = term.value_and_gradient([w])
    assert (value, gradient.item()) == (1.0, 1.5)


# --- every kind of data, every batch size -------------------------------------

SOURCES: dict[str, Any] = {
    "dict": {"x": X, "y": Y},
    "Dataset": TensorDataset(X, Y),
    "DataLoader": DataLoader(TensorDataset(X, Y), batch_size=4),
    "shuffled": DataLoader(TensorDataset(X, Y), batch_size=5, shuffle=True),
}


@pytest.mark.parametrize("data", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("chunk", [1, 6, 100])
def test_the_kind_of_data_does_not_matter(data: Any, chunk: int) -> None:  # noqa: ANN401
    p = network()

    def fn(batch: Any) -> Tensor:  # noqa: ANN401 - every kind of batch
        return losses(p, *(batch.values() if isinstance(batch, dict) else batch))

    weights = normal(23, seed=2)  # so that the order counts
    plain = mean(fn, (X, Y), weights=weights)
    term = mean(fn, data, weights=weights, chunk_size=chunk)
    expected = plain.value_and_gradient(p)
    assert term.value() == pytest.approx(expected[0], rel=1e-13)
    assert_close(term.value_and_gradient(p)[1], expected[1])
    indices = torch.tensor([22, 0, 0, 5])
    assert torch.equal(term.batch_value(indices), plain.batch_value(indices))


# --- minibatches --------------------------------------------------------------


def skewed(*, weighted: bool) -> tuple[AbstractTerm, Tensor]:
    """Ten values whose extremes sit at both ends, where a wrong draw misses them."""
    x = torch.tensor([-57.0, *range(1, 9), 100.0], dtype=torch.float64)
    weights = torch.linspace(-1.0, 3.0, 10, dtype=torch.float64) if weighted else None
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    return mean(lambda batch: w.square() * batch, x, weights=weights), w


@pytest.mark.parametrize("weighted", [False, True])
def test_single_examples_average_to_the_full_value(*, weighted: bool) -> None:
    term, _ = skewed(weighted=weighted)
    singles = [term.batch_value(torch.tensor([i])).item() for i in range(10)]
    assert math.fsum(singles) / 10 == pytest.approx(term.value(), rel=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 16])
def test_minibatches_are_unbiased(batch_size: int, *, weighted: bool) -> None:
    term, w = skewed(weighted=weighted)
    generator = torch.Generator().manual_seed(5)
    draws = 3000
    batches = [term.batch_value(term.draw(batch_size, generator)) for _ in range(draws)]
    values = torch.stack([b.detach() for b in batches])
    slopes = torch.stack([torch.autograd.grad(b, w)[0] for b in batches])
    value, (gradient,) = term.value_and_gradient([w])
    for sample, exact in ((values, value), (slopes, gradient.item())):
        error = abs(float(sample.mean()) - exact)
        assert error < 4 * float(sample.std()) / math.sqrt(draws)


def test_no_indices_mean_all_data() -> None:
    p = network()
    term = mean(lambda b: losses(p, *b), (X, Y))
    assert term.batch_value(None).item() == pytest.approx(term.value(), rel=1e-13)


def test_a_function_has_nothing_to_draw() -> None:
    w = torch.ones((), requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    for term in (function(lambda: 3 * w), function(lambda: 3 * w) <= 1.0):
        assert term.size is None
        assert term.draw(8, generator) is None
    assert torch.equal(generator.get_state(), state)


# --- weights ------------------------------------------------------------------


def test_weights_make_a_difference_of_group_means() -> None:
    p = network()
    in_a = torch.arange(23) % 3 == 0
    n, n_a = 23, int(in_a.sum())
    weights = torch.where(in_a, n / n_a, -n / (n - n_a))
    gap = mean(lambda b: losses(p, *b), (X, Y), weights=weights, chunk_size=4)
    value, gradient = gap.value_and_gradient(p)
    all_losses = losses(p, X, Y)
    expected = all_losses[in_a].mean() - all_losses[~in_a].mean()
    # float32 weights, given as such: 3e-8 of each group's mean
    assert value == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(gradient, gradients(expected, p), rtol=1e-5, atol=1e-6)


def test_integer_weights_count_examples() -> None:
    w = torch.tensor(1.0, requires_grad=True)
    term = mean(lambda b: w * b, torch.tensor([1.0, 5.0]), weights=torch.tensor([2, 0]))
    assert term.value() == 1.0
    assert term.batch_value(torch.tensor([1])).item() == 0.0


WEIGHTS = {
    "short": (torch.ones(2), r"3 numbers, one per example.*shape \(2,\)"),
    "column": (torch.ones(3, 1), r"got shape \(3, 1\)"),
    "NaN": (torch.tensor([1.0, math.nan, 1.0]), r"1 of its 3 entries are NaN"),
}


@pytest.mark.parametrize(("weights", "match"), WEIGHTS.values(), ids=WEIGHTS)
def test_wrong_weights_are_refused(weights: Tensor, match: str) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        mean(lambda b: b, torch.ones(3), weights=weights)


def test_a_chunk_holds_at_least_one_example() -> None:
    with pytest.raises(
        InvalidProblemError, match="chunk_size must be a whole number >= 1, got 0"
    ):
        mean(lambda b: b, torch.ones(3), chunk_size=0)


@pytest.mark.parametrize("sense", [1, -1])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_full_pass_has_the_value_of_every_example(
    sense: int, *, weighted: bool
) -> None:
    w, x = normal(3).requires_grad_(), normal(7, 3, seed=1)
    weights = normal(7, seed=2) if weighted else None
    risk = mean(lambda b: (b @ w).sin(), x, weights=weights, chunk_size=3)
    term = risk <= 0.3 if sense > 0 else risk >= 0.3
    value, gradient, each = term.full_pass([w])
    expected = term.value_and_gradient([w])
    assert value == expected[0]
    assert gradient is not None
    assert torch.equal(gradient[0], expected[1][0])
    assert term.full_pass(None)[:2] == (term.value(), None)
    assert each is not None
    assert not each.requires_grad
    assert each.mean().item() == pytest.approx(value, rel=1e-12)
    rows = torch.tensor([6, 0, 0, 4])
    torch.testing.assert_close(each[rows].mean(), term.batch_value(rows).detach())
    plain = function(w.sum) <= 1.0
    assert plain.full_pass(None) == (plain.value(), None, None)
    assert plain.full_pass([w]).each is None


def test_a_function_that_changes_its_batch_is_refused_before_the_data_is_hurt() -> None:
    w, x = torch.ones(2, requires_grad=True), torch.arange(10.0).reshape(5, 2)

    def greedy(batch: Tensor) -> Tensor:
        batch.mul_(1.001)
        return batch @ w

    kept = x.clone()
    with pytest.raises(
        InvalidProblemError, match="'objective' changes its batch in pl"
    ):
        oneproj.Problem(w, mean(greedy, x), {})
    with pytest.raises(InvalidProblemError, match="'c' changes its batch in place"):
        oneproj.Problem(w, mean(lambda b: b @ w, x), {"c": mean(greedy, x) <= 1.0})
    assert torch.equal(x, kept)
    oneproj.Problem(w, mean(lambda b: b.clone().mul_(2.0) @ w, x), {})


def test_values_must_be_real_numbers_with_a_gradient() -> None:
    w, x = torch.ones(2, requires_grad=True), torch.arange(10.0).reshape(5, 2)
    for fn, dtype in (
        (lambda b: b @ w > 0, "bool"),
        (lambda b: (b @ w > 0).long(), "int64"),
        (lambda b: (b @ w) * 1j, "complex64"),
    ):
        with pytest.raises(
            InvalidProblemError, match=f"dtype torch.{dtype}.*oneproj.rates"
        ):
            oneproj.Problem(w, mean(fn, x), {})


@pytest.mark.parametrize("weights", ["balanced", object(), [[1.0], [1.0, 2.0]]])
def test_weights_that_are_no_numbers_are_refused(weights: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(
        InvalidProblemError, match="weights must be made of real numbers"
    ):
        mean(lambda b: b, torch.ones(3), weights=weights)


def test_a_mean_is_of_a_function() -> None:
    with pytest.raises(
        InvalidProblemError, match=r"made of a function.*got a NoneType"
    ):
        mean(None, torch.ones(3))  # type: ignore[arg-type]


PER_EXAMPLE = {
    "column": (lambda b: b[:, None], r"\(3, 1\)"),
    "pairs": (lambda b: b[:, None] - b, r"\(3, 3\), as scores \(n, 1\) with labels"),
    "averaged": (lambda b: b.mean(), r"\(\)"),
    "short": (lambda b: b[1:], r"\(2,\)"),
    "number": (lambda b: float(b.sum()), "float"),
    "nothing": (lambda _: None, "NoneType"),
}


@pytest.mark.parametrize(("fn", "got"), PER_EXAMPLE.values(), ids=PER_EXAMPLE)
def test_a_mean_wants_one_value_per_example(fn: Any, got: str) -> None:  # noqa: ANN401
    term = mean(fn, torch.ones(3)).named("risk")
    match = (
        rf"function of 'risk' must return one value per example, shape \(3,\).*{got}"
    )
    for evaluate in (
        term.value,
        lambda: term.value_and_gradient([]),
        lambda: term.batch_value(torch.arange(3)),
    ):
        with pytest.raises(InvalidProblemError, match=match):
            evaluate()


class Broken(Dataset[Tensor]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, i: int) -> Tensor:
        if i == 7:
            message = "broken file 7.png"
            raise OSError(message)
        return torch.ones(3 + i % 2)


@pytest.mark.parametrize(
    ("rows", "error"),
    [([6, 7], OSError), ([0, 1], RuntimeError)],
    ids=["in an item", "in collate"],
)
def test_an_error_in_the_data_says_whose_data_it_is(
    rows: list[int], error: type[Exception]
) -> None:
    risk = oneproj.mean(lambda batch: batch.sum(1), Broken()).named("risk")
    noted = ["In the data of 'risk', where a batch is made."]
    for evaluate in (risk.value, lambda: risk.batch_value(torch.tensor(rows))):
        with pytest.raises((OSError, RuntimeError)) as caught:
            evaluate()
        assert caught.value.__notes__ == noted
    assert isinstance(caught.value, error)
