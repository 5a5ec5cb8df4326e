"""Which tensors move, and a centre shaped like them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError


def optimised(
    parameters: Iterable[Tensor] | Tensor, used: Iterable[Tensor] = ()
) -> list[Tensor]:
    """The parameters of a problem whose objective uses these tensors."""
    tensors = list(used)
    objective = oneproj.function(lambda: torch.stack([t.sum() for t in tensors]).sum())
    return oneproj.Problem(parameters, objective, {}).parameters


def test_a_problem_keeps_the_order_and_drops_frozen_and_repeated_tensors() -> None:
    a, b, frozen = torch.ones(2), torch.ones(3), torch.ones(4)
    a.requires_grad_()
    b.requires_grad_()
    found = optimised(iter([b, frozen, a, b]), [a, b])
    assert [id(t) for t in found] == [id(b), id(a)]


def test_one_tensor_stands_for_a_list() -> None:
    w = torch.ones(2, requires_grad=True)
    assert optimised(w, [w])[0] is w


def test_a_generator_that_was_gone_through_is_told_of() -> None:
    layer = torch.nn.Linear(2, 1)
    parameters = layer.parameters()
    assert len(optimised(parameters, layer.parameters())) == 2
    with pytest.raises(InvalidProblemError, match=r"list\(model\.parameters\(\)\)"):
        optimised(parameters)


def test_parameters_that_share_memory_are_refused() -> None:
    a = torch.nn.Parameter(torch.ones(2, 3))
    tied, turned = torch.nn.Parameter(a.data), torch.nn.Parameter(a.data.T)
    whole = torch.ones(6)
    parts = [torch.nn.Parameter(whole[:4]), torch.nn.Parameter(whole[2:])]
    for pair in ([tied, a], [a, torch.nn.Parameter(torch.ones(9)), turned], parts):
        with pytest.raises(InvalidProblemError, match=r"share memory.*b\.weight = a"):
            optimised(pair)


def test_parts_of_one_tensor_that_have_nothing_in_common_may_move() -> None:
    whole, z = torch.ones(6), torch.ones(4, dtype=torch.complex64)
    parts = [whole[:4], whole[4:], z.real, z.imag]
    parameters = [torch.nn.Parameter(part) for part in parts]
    assert len(optimised(parameters, parameters)) == len(parts)


NAN = torch.tensor([1.0, math.nan], requires_grad=True)
REFUSED = {
    "nothing": ([], "nothing to optimise: got no tensor at all"),
    "used up": (iter(()), r"gone through before.*list\(model\.parameters\(\)\)"),
    "frozen": (
        [torch.ones(2), torch.ones(1)],
        r"got 2 frozen or empty tensor.*needs requires_grad=True",
    ),
    "integers": (torch.arange(3), r"torch\.int64.*floating"),
    "frozen tensor": (torch.ones(2), r"got 1 frozen or empty tensor"),
    "not a tensor": ([[1.0, 2.0]], "must be tensors, but got list.*model.parameters"),
    "computed": ([2 * torch.ones(1, requires_grad=True)], "not a leaf tensor"),
    "empty": (
        [torch.empty(0, 3, requires_grad=True)],
        "nothing to optimise: got 1 frozen or empty",
    ),
    "NaN": ([NAN], r"shape \(2,\) holds NaN or inf at the start"),
    "inf": ([torch.full((1,), math.inf, requires_grad=True)], "NaN or inf"),
    "complex": (
        [torch.ones(1, dtype=torch.complex64, requires_grad=True)],
        "dtype torch.complex64.*real floating-point",
    ),
}


@pytest.mark.parametrize(("parameters", "match"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_optimised_is_refused(
    parameters: list[Tensor], match: str
) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        optimised(parameters)
