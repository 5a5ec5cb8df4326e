"""A fingerprint of what a run computes with: every term, on a sample of its data.

The sample is the same examples each time, spread evenly over the data, and the values
are those at the point that the parameters hold. Saved with a run they tell, when it is
to go on, whether data, losses and frozen parameters are still what they were: not all
of the data is looked at, but data that was shuffled, drawn, scaled or preprocessed in
another way gives other values. It is no full pass and no constraint gradient, so the
counts of a run do not have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from oneproj.errors import CheckpointError
from oneproj.parameters import rounding_unit
from oneproj.problem import Problem
from oneproj.projection.margins import MARGIN_POWER
from oneproj.terms.base import AbstractTerm
from oneproj.terms.modes import evaluating

SAMPLE = 256
"""Examples of each term: the work of a few minibatches, at every checkpoint."""
NOISE = 0
"""Seeds what a term draws from torch's global generator, which is put back."""


def sample_values(problem: Problem) -> dict[str, float]:
    """The value of every term on its sample, by the term's name.

    Example:
        >>> import oneproj
        >>> x, w = torch.arange(3.0), torch.ones(1, requires_grad=True)
        >>> mean = oneproj.mean(lambda batch: w * batch, data=x)
        >>> sample_values(oneproj.Problem(w, mean, {"cap": mean <= 5.0}))
        {'objective': 1.0, 'cap': -4.0}
    """
    terms = (problem.objective, *problem.constraints.values())
    return {term.name: _value(term) for term in terms}


def check_sample(problem: Problem, saved: Mapping[str, float]) -> None:
    """Compare the values with those that were saved at the same point.

    Terms that are random in a way that cannot be repeated are not compared.

    Raises:
        CheckpointError: They differ by more than rounding; the message names the term.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> check_sample(problem, {"objective": 1.0})
    """
    eps = rounding_unit(problem.parameters)
    for term in (problem.objective, *problem.constraints.values()):
        then, now = saved[term.name], _value(term)
        # As much as a projector's margin: another number of threads changes less.
        room = eps**MARGIN_POWER * (term.scale() + abs(then))
        if _agree(then, now, room) or not _agree(_value(term), now, room):
            continue
        message = (
            f"The data or the function of {term.name!r} is not what it was when the "
            "checkpoint was written: on the same examples, at the same parameters, it "
            f"was {then!r} then and is {now!r} now. A run resumes only with what it "
            "began with, or its answer would be that of neither. Nothing was loaded. "
            "Bring back the data, its order, its preprocessing, the loss and the "
            "frozen parameters, or start anew with another checkpoint path."
        )
        raise CheckpointError(message)


@torch.no_grad()
def _value(term: AbstractTerm) -> float:
    indices = None
    if term.size is not None:
        count = min(SAMPLE, term.size)
        indices = torch.arange(count, device="cpu") * term.size // count
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices), evaluating(term.model):
        torch.default_generator.manual_seed(NOISE)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(NOISE)
        return float(term.batch_value(indices))


def _agree(a: float, b: float, room: float) -> bool:
    """Whether two values are the same up to rounding; what is not finite, exactly."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= room
    return repr(a) == repr(b)
