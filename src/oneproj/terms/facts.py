"""What all ranks of a process group have to agree on: parameters and terms.

A value alone does not tell data apart: where all weights are zero, a logistic loss is
log 2 for any data. So the length of the gradient is compared as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from oneproj.autograd import fresh_casts
from oneproj.distributed import Fact, digest
from oneproj.parameters import Vector, norm, rounding_unit
from oneproj.terms.base import AbstractTerm
from oneproj.terms.modes import evaluating_when_called

VALUE_POWER = 0.75
"""Values on all data agree if they differ by eps^0.75 of their size: another number of
threads, or another processor, changes less."""
SEED = 0
"""Of the noise that a term may draw from torch's global generators meanwhile; their
states are put back."""


def common_facts(parameters: Vector, terms: Iterable[AbstractTerm]) -> dict[str, Fact]:
    """The parameters, and the size, value and gradient of every term on all data.

    It costs one gradient of every term.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> facts = common_facts([w], [oneproj.function(w.norm).named("size")])
        >>> facts["the value of 'size'"].value
        5.0
    """
    terms = list(terms)
    names = ", ".join(term.name for term in terms)
    facts = {
        "the parameters": Fact(digest(parameters), "parameters"),
        "the order of the terms": Fact(names, "data"),
    }
    devices = range(torch.cuda.device_count())
    with fresh_casts(), torch.random.fork_rng(devices), evaluating_when_called():
        for term in terms:
            torch.default_generator.manual_seed(SEED)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(SEED)
            facts |= _of_term(term, parameters)
    return facts


def _of_term(term: AbstractTerm, parameters: Vector) -> dict[str, Fact]:
    value, gradient = term.value_and_gradient(parameters)
    term.check_finite(value, gradient)
    eps, steepness = rounding_unit(parameters), norm(gradient)
    if (computed := term.precision()) is not None:
        eps = max(eps, torch.finfo(computed).eps)
    size = abs(value) + term.scale()
    # A gradient that nearly vanishes is a difference of numbers that do not.
    room = math.sqrt(eps) * (steepness + size)
    examples = "none" if term.size is None else str(term.size)
    return {
        f"the number of examples of {term.name!r}": Fact(examples, "data"),
        f"the value of {term.name!r}": Fact(value, "data", eps**VALUE_POWER * size),
        f"the norm of the gradient of {term.name!r}": Fact(steepness, "data", room),
    }
