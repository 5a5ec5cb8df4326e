"""A term is tried on a few examples before a run relies on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from oneproj.autograd import fresh_parametrisations
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.parameters import Vector
from oneproj.terms.base import AbstractTerm
from oneproj.terms.constraints import Constraint
from oneproj.terms.graphs import check_complete, check_fresh, nodes, rounding
from oneproj.terms.hooks import check_hooks
from oneproj.terms.modes import evaluating, evaluating_when_called, restless_parts

PROBE_SIZE = 3
"""Examples on which each term is tried; the last is another one the second time."""


class Probe(NamedTuple):
    """What trying terms has shown."""

    random: list[str]
    """The names of constraints that may be, which is warned of."""
    training: list[nn.Module]
    """Modules that were found in training mode; they were tried in the other one."""

    def kinds(self) -> str:
        """The kinds of these modules, in words."""
        names = {name for module in self.training for name in restless_parts(module)}
        return " and ".join(sorted(names))


@torch.enable_grad()
def check_connected(terms: Iterable[AbstractTerm], parameters: Vector) -> Probe:
    """Try terms on a few examples: right shape, finite, reached by parameters.

    Raises:
        InvalidProblemError: The shape is wrong, no gradient reaches a parameter, a
            term writes to one, or part of it was computed before.
        NonFiniteError: A value is NaN or inf.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_connected([function(lambda: w.norm())], [w]).random
        []
    """
    terms = list(terms)
    # A model that is given evaluates; watched, it would be compiled once more.
    given = all(holds(term.model, parameters) for term in terms)
    with evaluating_when_called(enabled=not given) as training:
        random = [term.name for term in terms if _may_be_random(term, parameters)]
    return Probe(random, training)


def _may_be_random(term: AbstractTerm, parameters: Vector) -> bool:
    """Try one term."""
    probe = _examples(term)
    before = _versions(parameters)
    with evaluating(term.model), fresh_parametrisations():
        values = _values(term, probe)
    if _versions(parameters) != before:
        _refuse_to_be_moved(term)
    random = _look_again(term, values, parameters)
    value = values.mean()
    if not bool(torch.isfinite(value)):
        quantity = f"the value of {term.name!r} at the start"
        raise NonFiniteError(quantity)
    if not _reaches(value, parameters):
        message = (
            f"{term.name!r} does not depend on the parameters of this problem: no "
            "gradient reaches them. Check that its function uses the same tensors that "
            "were passed as parameters, without .detach(), .item() or torch.no_grad(). "
            "A comparison (an accuracy, score > 0) has no gradient: use a surrogate, "
            "such as torch.sigmoid(score) or softplus(-score). The tensor of a set "
            "must be one of the parameters, and require a gradient. A model that "
            "merges factors into its weights to evaluate (LoRA) must be told not to."
        )
        raise InvalidProblemError(message)
    drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
    with drawn, evaluating(term.model), fresh_parametrisations():
        check_hooks(lambda: _values(term, probe).mean(), parameters)
    return random


@torch.enable_grad()
def check_still_connected(terms: Iterable[AbstractTerm], parameters: Vector) -> None:
    """Try terms that were connected before: a model may have other tensors by now.

    What they draw from torch's global generators is put back.

    Raises:
        InvalidProblemError: No gradient of a term reaches a parameter any more.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_still_connected([function(lambda: w.norm())], [w])
    """
    for term in terms:
        drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
        with drawn, evaluating(term.model):
            value = term.batch_value(_examples(term))
        if not _reaches(value, parameters):
            message = (
                f"{term.name!r} does not depend on the parameters of this problem any "
                "more: its function uses other tensors by now, and what is found for "
                "these would not be for those. load_state_dict(..., assign=True), a "
                "layer that was replaced and a deep copy do that. Build the Problem "
                "after them, from model.parameters(); to load a state into the same "
                "tensors, leave out assign."
            )
            raise InvalidProblemError(message)


def _examples(term: AbstractTerm) -> Tensor | None:
    """Indices of the examples on which a term is tried."""
    if term.size is None:
        return None
    return torch.arange(min(PROBE_SIZE, term.size), device="cpu")


def _reaches(value: Tensor, parameters: Vector) -> bool:
    """Whether a gradient of the value arrives at one of the parameters, be it zero."""
    if not value.requires_grad:
        return False
    found = torch.autograd.grad(value, list(parameters), allow_unused=True)
    return any(part is not None for part in found)


def holds(model: torch.nn.Module | None, parameters: Vector) -> bool:
    """Whether all of them are the model's: then it is the one that terms call."""
    own = set() if model is None else {id(p) for p in model.parameters()}
    return all(id(p) in own for p in parameters)


def _versions(parameters: Vector) -> list[int]:
    """A number for each that changes when something writes to it."""
    # torch counts them itself: that takes no copy.
    return [0 if p.is_inference() else p._version for p in parameters]  # noqa: SLF001


def _refuse_to_be_moved(term: AbstractTerm) -> None:
    message = (
        f"Evaluating {term.name!r} changes the parameters, as an Embedding with "
        "max_norm does: then neither its value nor how far they have moved means "
        "anything. Make it a function that only reads them, and state what it did as a "
        "constraint (such as an oneproj.function of the largest norm of the rows) or "
        "as a parametrisation (torch.nn.utils.parametrize)."
    )
    raise InvalidProblemError(message)


def _values(term: AbstractTerm, examples: Tensor | None) -> Tensor:
    """One value per example, or that of a term without data."""
    torch.clear_autocast_cache()  # which holds what the call before cast
    if examples is None:
        return term.batch_value(None).reshape(1)
    return term.examples(examples)


def _look_again(term: AbstractTerm, values: Tensor, parameters: Vector) -> bool:
    """Call the term once more, beside another example; whether it seems random."""
    graph, probe = nodes(values), _examples(term)
    check_complete(term.name, graph)
    other, kept = probe, len(values)
    if probe is not None and term.size is not None and term.size > PROBE_SIZE:
        kept = PROBE_SIZE - 1
        other = torch.where(probe < kept, probe, PROBE_SIZE)
    drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
    with drawn, evaluating(term.model), fresh_parametrisations():
        again = _values(term, other)
        check_fresh(term.name, graph, nodes(again), parameters)
        first, then, eps = values[:kept], again[:kept], rounding(graph)
        if not isinstance(term, Constraint) or _agree(term, first, then, eps):
            return False
        same = _values(term, probe)[:kept]
    if _agree(term, first, same, eps):
        _warn_of_company(term, first.mean(), then.mean())
        return False
    _warn_of_noise(term, first.mean(), same.mean())
    return True


def _agree(term: Constraint, a: Tensor, b: Tensor, eps: float) -> bool:
    """Whether the residuals of examples have one mean but for rounding, or none.

    Values that nearly cancel are rounded as large as they are, not as their mean is.
    """
    a, b = a.detach(), b.detach()
    apart, size = float((a.mean() - b.mean()).abs()), float(a.abs().mean())
    return not apart > math.sqrt(eps) * (size + abs(term.bound))


def _warn_of_noise(term: Constraint, first: Tensor, again: Tensor) -> None:
    message = (
        f"The constraint {term.name!r} is random: on the same examples its residual "
        f"was {first.item():.6g}, then {again.item():.6g}. What is found feasible is "
        "so for the values that were seen, and need not be for the next ones. Noise, "
        "dropout and augmentation are for the objective; average a constraint over "
        "fixed draws of them, or pass oneproj.Problem(..., model=model)."
    )
    warn(message)


def _warn_of_company(term: Constraint, once: Tensor, beside: Tensor) -> None:
    message = (
        f"In the constraint {term.name!r} the value of an example depends on the rest "
        f"of its batch: on the same examples the residual was {once.item():.6g}, and "
        f"beside another {beside.item():.6g}. What is found feasible is so for batches "
        "of chunk_size, in the order of the data, and need not be for others. "
        "Statistics or negatives taken from the batch, batch norm without running ones "
        "and padding that is not masked do that: take them from fixed data, or write "
        "the constraint as an oneproj.function of all data."
    )
    warn(message)
