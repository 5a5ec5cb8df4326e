"""A term is tried on a few examples before a run relies on it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from oneproj.autograd import fresh_parametrisations
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.parameters import Vector
from oneproj.terms.base import AbstractTerm
from oneproj.terms.constraints import Constraint
from oneproj.terms.modes import evaluating, watching_modes

PROBE_SIZE = 2
"""Examples on which each term is tried."""


@torch.enable_grad()
def check_connected(term: AbstractTerm, parameters: Vector) -> bool:
    """Try the term on a few examples: right shape, finite, reached by parameters.

    Returns:
        Whether it is a constraint that may be random, which is warned of.

    Raises:
        InvalidProblemError: The shape is wrong, no gradient reaches a parameter, or
            the term writes to one.
        NonFiniteError: The value is NaN or inf.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_connected(function(lambda: w.norm()), [w])
        False
    """
    probe = _examples(term)
    # A model that is given evaluates; watched, it would be compiled once more.
    watching = watching_modes(enabled=not _holds(term.model, parameters))
    before = _versions(parameters)
    with evaluating(term.model), watching as training, fresh_parametrisations():
        value = term.batch_value(probe)
    if _versions(parameters) != before:
        _refuse_to_be_moved(term)
    random = False
    if training:
        _warn_of_modes(training)
        random = isinstance(term, Constraint)
    elif isinstance(term, Constraint):
        random = _warn_if_random(term, probe, value.detach())
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
            "must be one of the parameters, and require a gradient."
        )
        raise InvalidProblemError(message)
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


def _holds(model: torch.nn.Module | None, parameters: Vector) -> bool:
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


def _warn_if_random(term: Constraint, probe: Tensor | None, first: Tensor) -> bool:
    """Say so if the same examples give another residual the second time; whether."""
    with evaluating(term.model):
        again = term.batch_value(probe).detach()
    apart, size = (float(t.abs()) for t in (again - first, first))
    noise = math.sqrt(torch.finfo(first.dtype).eps)
    if not apart > noise * (size + abs(term.bound)):  # also where it is not finite
        return False
    message = (
        f"The constraint {term.name!r} is random: on the same examples its residual "
        f"was {float(first):.6g}, then {float(again):.6g}. What is found feasible is "
        "so for the values that were seen, and need not be for the next ones. Noise, "
        "dropout and augmentation are for the objective; average a constraint over "
        "fixed draws of them, or pass oneproj.Problem(..., model=model)."
    )
    warn(message)
    return True


def _warn_of_modes(training: Iterable[str]) -> None:
    message = (
        f"{' and '.join(sorted(training))} in training mode: the value of a term is "
        "random, or depends on the rest of its batch, so that what is found feasible "
        "need not be so after model.eval(). Pass oneproj.Problem(..., model=model), "
        "the one that has them, which evaluates where it counts, or call model.eval() "
        "first."
    )
    warn(message)
