"""Evidence against a declared curvature: a value below a linearisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from torch import Tensor

from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.tolerances import TOLERANCES
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import Array, Vector, combine, dimension, norm

PLAIN = 0.1
"""Of the residual at the start: a value is below a linearisation by more than that."""
BLOCK = 2**16
"""Entries of vectors whose inner products are taken at a time: 0.5 MB each."""
PROBES = 8
"""Points that are evaluated before emptiness is claimed."""


class Prediction(NamedTuple):
    """The value of a cut at a point: at most that of its constraint, if convex."""

    name: str
    value: float
    terms: float
    """The size of the numbers that it was computed from."""
    slope: float
    """The norm of the gradient."""

    @classmethod
    def of(cls, name: str, level: float, offset: float, slope: float) -> Self:
        """From a cut ``<g, d> <= offset`` with a unit normal, and ``level = <g, d>``.

        Example:
            >>> Prediction.of("a", level=3.0, offset=1.0, slope=2.0)
            Prediction(name='a', value=4.0, terms=8.0, slope=2.0)
        """
        terms = slope * (abs(level) + abs(offset))
        return cls(name, slope * (level - offset), terms, slope)


class Witness:
    """Compares what is seen with what cuts say, and refuses what contradicts them.

    A convex function lies above its linearisations. A value that is below one by more
    than rounding explains proves that the declared curvature is wrong, and that cuts of
    the function may have cut off the answer.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        """Take the sizes of the numbers that are rounded from the evaluator."""
        self._sure = max(TOLERANCES.sure_share, TOLERANCES.sure_units * evaluator.eps)
        self._far = TOLERANCES.sure_units * evaluator.eps
        self._size = norm(evaluator.origin)
        self._constraints, self._first = evaluator.constraints, evaluator.first.values
        self._scales = {name: c.scale() for name, c in evaluator.constraints.items()}

    def check(
        self,
        seen: Evaluation,
        said: Iterable[Prediction],
        moved: float,
        *,
        unseen: float = PLAIN,
    ) -> None:
        """Refuse a constraint whose value is below a cut's.

        Args:
            seen: All constraints at a point.
            said: What the cuts say about them there.
            moved: The point's distance from the start.
            unseen: As for ``refusal``.

        Raises:
            InvalidProblemError: A declared curvature is wrong.
        """
        message = self.refusal(seen, said, moved, unseen=unseen)
        if message:
            raise InvalidProblemError(message)

    def refusal(
        self,
        seen: Evaluation,
        said: Iterable[Prediction],
        moved: float,
        *,
        unseen: float = PLAIN,
    ) -> str:
        """What ``check`` would say; nothing if all may be as it was declared.

        Args:
            seen: As for ``check``.
            said: As for ``check``; of what is declared linear, from both sides.
            moved: As for ``check``.
            unseen: Share of the residual at the start that may be rounding.
        """
        for name, predicted, terms, slope in said:
            value, constraint = seen.values[name], self._constraints[name]
            size = self._scales[name] + abs(value) + terms
            # The point is rounded too, and the value with it.
            noise = self._sure * size + self._far * slope * (self._size + moved)
            # What is large inside a function, and cancels, is rounded unseen.
            noise = max(noise, unseen * abs(self._first[name]))
            apart = predicted - value
            if constraint.curvature == "linear":
                apart = abs(apart)
            # The band of a set bends its distance, slightly, and it is what it is.
            if apart > noise and not isinstance(constraint, SetConstraint):
                return self.message(name, predicted, value)
        return ""

    def message(self, name: str, predicted: float, value: float) -> str:
        """What to say of a constraint whose value is below a linearisation."""
        curvature = self._constraints[name].curvature
        never = "equals" if curvature == "linear" else "is never below"
        return (
            f"The constraint {name!r} is declared {curvature}, but is not: "
            f"where a linearisation of it is {predicted:.6g} its value is {value:.6g}, "
            f"and such a function {never} its linearisations. The nearest point "
            "may have been cut off. Leave the term's curvature out: the answer is then "
            "nearest locally. If the declaration is true, the term has to be the same "
            "function at every call: no dropout, and no other batch."
        )


def challenge(evaluator: Evaluator, inside: Callable[[Vector], Vector] = list) -> None:
    """Test the declared curvatures before emptiness is claimed on their account.

    Linearisations that exclude every point prove emptiness only if the functions are
    convex, as declared. So every linearisation that was kept is compared with every
    value that was kept. Then ``PROBES`` more points are evaluated, and compared in the
    same way: they are halfway between the best point so far and, in turn, the second
    best and the worst. If only the start was visited, the first probe is beside it.

    Args:
        evaluator: Of the constraints; it knows the best point afterwards.
        inside: Moves a probe to where the constraints may be evaluated.

    Raises:
        InvalidProblemError: A declared curvature is wrong.
    """
    witness = Witness(evaluator)
    evaluator.keep(len(evaluator.kept) + PROBES)
    _compare(evaluator, witness, since=0)
    for k in range(PROBES):
        compared = len(evaluator.kept)
        try:
            evaluator.move_to(list(inside(_probe(evaluator, k))))
        except NonFiniteError:
            return
        _compare(evaluator, witness, since=compared)


def contradiction(evaluator: Evaluator) -> str:
    """Say which declared curvature the kept evaluations contradict; "" if none.

    Every linearisation that was kept is compared with every value that was kept, up to
    the rounding that the numbers show. So it costs no evaluation. The answer stays, but
    a bound on its distance that rests on such linearisations proves nothing.

    Args:
        evaluator: Of a search that has ended.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
        >>> dome = oneproj.function(lambda: 1 - w.square().sum(), curvature="convex")
        >>> evaluator = Evaluator([w], {"dome": dome <= 0.0}, differentiate_all=True)
        >>> evaluator.keep(2)
        >>> _ = evaluator.move_to([torch.tensor([2.0], dtype=torch.float64)])
        >>> contradiction(evaluator)[:66]
        "The lower bound is withdrawn. The constraint 'dome' is declared co"
    """
    terms = evaluator.constraints.items()
    declared = [name for name, c in terms if c.curvature in ("convex", "linear")]
    if not declared:
        return ""
    witness = Witness(evaluator)
    pairs = zip(
        evaluator.kept, _predictions(evaluator, since=0, linear=True), strict=True
    )
    for (point, seen), said in pairs:
        own = [prediction for prediction in said if prediction.name in declared]
        if not own:
            continue
        found = witness.refusal(seen, own, evaluator.space.length(point), unseen=0.0)
        if found:
            return (
                f"The lower bound is withdrawn. {found} Large numbers that cancel "
                "inside the term look the same: float64 tells."
            )
    return ""


def _compare(evaluator: Evaluator, witness: Witness, *, since: int) -> None:
    """Compare the pairs of linearisations and values that are new ``since``."""
    pairs = zip(evaluator.kept, _predictions(evaluator, since=since), strict=True)
    for (point, seen), said in pairs:
        witness.check(seen, said, evaluator.space.length(point))
        if seen.worst <= 0 and said:  # the linearisations leave no feasible point
            worst = max(said, key=lambda p: p.value - seen.values[p.name])
            value = seen.values[worst.name]
            raise InvalidProblemError(witness.message(worst.name, worst.value, value))


def _probe(evaluator: Evaluator, k: int) -> list[Tensor]:
    """The k-th point to evaluate."""
    best, *others = sorted(evaluator.kept, key=lambda kept: kept[1].worst)
    if others:
        return combine([0.5, 0.5], [best[0], others[-(k % 2)][0]])
    far = max(norm(evaluator.origin), 1.0) / math.sqrt(dimension(evaluator.origin))
    return [t + far for t in evaluator.origin]


def _predictions(
    evaluator: Evaluator, *, since: int, linear: bool = False
) -> Iterator[list[Prediction]]:
    """For every kept point, what the kept linearisations say there beyond its values.

    Pairs of which both were kept before ``since`` are left out. With ``linear``, what
    they say below the values of constraints that are declared linear is there as well.
    """
    found: list[list[Prediction]] = [[] for _ in evaluator.kept]
    for name in evaluator.constraints:
        held = [
            k for k, (_, seen) in enumerate(evaluator.kept) if name in seen.gradients
        ]
        if not held:
            continue
        both = linear and evaluator.constraints[name].curvature == "linear"
        values = np.array([evaluator.kept[k][1].values[name] for k in held])
        gradients = [evaluator.kept[k][1].gradients[name] for k in held]
        reach, slopes, lengths = _products(evaluator, gradients)
        here = reach[np.arange(len(held)), held]
        said = values[:, None] + reach - here[:, None]
        # Inner products may cancel: what is rounded is as large as the lengths.
        far = lengths[held][:, None] + lengths
        terms = np.abs(values)[:, None] + slopes[:, None] * far
        for i, (_, seen) in enumerate(evaluator.kept):
            value = seen.values[name]
            other = (said[:, i] != value) if both else (said[:, i] > value)
            for k in np.flatnonzero(other):
                if max(held[k], i) >= since:
                    found[i].append(
                        Prediction(name, said[k, i], terms[k, i], slopes[k])
                    )
    yield from found


def _products(
    evaluator: Evaluator, gradients: Sequence[Vector]
) -> tuple[Array, Array, Array]:
    """Inner products of gradients and kept displacements, and the lengths of both.

    A block of entries at a time, so that large vectors are not copied as a whole.
    """
    points = [point for point, _ in evaluator.kept]
    products = np.zeros((len(gradients), len(points)))
    slopes, lengths = np.zeros(len(gradients)), np.zeros(len(points))
    for i, start in enumerate(evaluator.origin):
        for first in range(0, start.numel(), BLOCK):
            block = slice(first, first + BLOCK)
            n = np.array([_entries(gradient[i], block) for gradient in gradients])
            d = np.array([_entries(point[i], block) for point in points])
            d -= _entries(start, block)
            products += n @ d.T
            slopes += np.square(n).sum(1)
            lengths += np.square(d).sum(1)
    return products, np.sqrt(slopes), np.sqrt(lengths)


def _entries(tensor: Tensor, block: slice) -> Array:
    found: Array = tensor.detach().reshape(-1)[block].cpu().double().numpy()
    return found
