"""Searching on samples of large data, corrected by all of it.

Let y be a point where a constraint c and its gradient were evaluated on all data, and
c_S the mean over a sample S of the examples. The search sees

    ``c_S(z) + [c(y) - c_S(y)] + <grad c(y) - grad c_S(y), z - y>``,

which has the value and the gradient of c at y. What is left of the sampling error at z
is that of the curvature: it falls with the square of ``|z - y|``. So two or three
points on all data, each found from the last, take the place of all points of a search.
From the second on they are aimed inside by a share of the last residual, since what is
left of the error has any sign.

Nothing is claimed from a sample. All points count as the others of the search on all
data, which goes on from the best of them, ends by its own test and reports. Constraints
that are all declared convex are not sampled: their cuts prove the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.problem.autograd import accumulate
from oneproj.problem.modes import evaluating
from oneproj.problem.terms import AbstractTerm, FullPass
from oneproj.projection.evaluator import ROUGHLY, Evaluation, Evaluator, unwatched
from oneproj.projection.local_model import LocalWarmStart
from oneproj.projection.tolerances import TOLERANCES
from oneproj.rates.terms import parts
from oneproj.vectors.arithmetic import Vector, dot, snapshot

Search = Callable[
    [Vector, Mapping[str, AbstractTerm], LocalWarmStart | None], LocalWarmStart
]
"""Moves the parameters to a projection, from where they are; returns its models."""


def screen(evaluator: Evaluator, search: Search, slack: float) -> LocalWarmStart | None:
    """Go to points that a search on samples finds, until one is barely feasible.

    At most ``TOLERANCES.screenings`` points; the evaluator knows the best of them.

    Args:
        evaluator: Of the constraints on all data; it has seen the start alone.
        search: For constraints in their place.
        slack: How far inside is near enough, as a share of the start's violation; a
            few margins are.

    Returns:
        The models of the last search; None where no constraint has large data.
    """
    rows = _sample(evaluator.constraints)
    parameters, known = evaluator.parameters, evaluator.first
    models: LocalWarmStart | None = None
    aim = 0.0
    # A point without a finite value ends it: the search on all data goes on.
    with suppress(NonFiniteError):
        for _ in range(TOLERANCES.screenings if rows else 0):
            sampled = {
                name: Corrected(constraint, rows[name], parameters, known, aim)
                if name in rows
                else constraint
                for name, constraint in evaluator.constraints.items()
            }
            evaluator.lend()
            with unwatched():
                models = search(parameters, sampled, models)
            known = evaluator.move_to(snapshot(parameters))
            deepest = ROUGHLY * max(evaluator.margins.values())
            if -slack * evaluator.first.worst - deepest <= known.worst <= 0:
                break
            aim = TOLERANCES.sampled_aim * abs(known.worst)
    return models


def _sample(constraints: Mapping[str, AbstractTerm]) -> dict[str, Tensor]:
    """Random examples of the constraints with large data, the same for equal sizes.

    So the two sides of a band remain exactly opposite.
    """
    least = TOLERANCES.samples_of_large * TOLERANCES.sample
    found = {}
    for name, constraint in constraints.items():
        weighted = parts(constraint).weighted
        # Of largest values a sample says little.
        means = all(t.size is not None or not t.has_data for _, t in weighted)
        if means and (constraint.size or 0) >= least:
            generator = torch.Generator().manual_seed(0)
            drawn = constraint.draw(TOLERANCES.sample, generator)
            if drawn is not None:
                found[name] = drawn
    return found


class Corrected(AbstractTerm):
    """A constraint on a sample, with the value and the gradient of all data at a point.

    Args:
        constraint: On all data.
        rows: The sample.
        parameters: Hold the point where the constraint was evaluated.
        known: The evaluation there.
        aim: By how much to see it more violated than it is, so as to end inside.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([1.0], requires_grad=True)
        >>> x = torch.tensor([1.0, 2.0, 3.0])
        >>> square = oneproj.mean(lambda x: x * w.square(), data=x) <= 1.0
        >>> known = Evaluator([w], {"square": square.named("square")},
        ...     differentiate_all=True).first
        >>> sampled = Corrected(square.named("square"), torch.tensor([0]), [w], known)
        >>> sampled.value(), sampled.value_and_gradient([w])[1]
        (1.0, [tensor([4.])])
    """

    def __init__(
        self,
        constraint: AbstractTerm,
        rows: Tensor,
        parameters: Vector,
        known: Evaluation,
        aim: float = 0.0,
    ) -> None:
        """Evaluate the sample at the point."""
        self.name, self.model = constraint.name, constraint.model
        self._constraint, self._rows = constraint, rows
        self._parameters = [p.detach() for p in parameters]
        self._slope, self._offset = [torch.zeros_like(p) for p in parameters], 0.0
        value, gradient = self.value_and_gradient(parameters)
        torch._foreach_neg_(gradient)
        torch._foreach_add_(gradient, known.gradients[constraint.name])
        self._slope = gradient
        far = dot(gradient, self._parameters)
        self._offset = known.values[constraint.name] - value - far + aim

    def precision(self) -> torch.dtype | None:
        return self._constraint.precision()

    def scale(self) -> float:
        return self._constraint.scale()

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # the sample is seen as a whole
        return self._constraint.batch_value(self._rows)

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        del each  # the value is more than the mean of the examples
        gradient = None
        if parameters is not None:
            gradient = [part.clone() for part in self._slope]
        value = self._offset + dot(self._slope, self._parameters)
        with torch.set_grad_enabled(parameters is not None), evaluating(self.model):
            chunk = self._constraint.chunk_size or len(self._rows)
            for rows in torch.split(self._rows, chunk):
                values = self._constraint.examples(rows).double()
                share = values.sum() / len(self._rows)
                value += float(share.detach())
                if parameters is not None and gradient is not None:
                    accumulate(gradient, share, parameters)
        self.check_finite(value, gradient or ())
        return FullPass(value, gradient, None)
