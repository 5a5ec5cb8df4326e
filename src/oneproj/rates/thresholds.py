"""Moving the thresholds of scores, by parameters that move all scores alike.

A bias of the last layer moves the scores of all rows by the same amount, as another
threshold would. Along such a direction every count is known from one pass over the
data: a row changes its decision where its score passes the threshold. So the best move
is found exactly, among all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from oneproj.problem.terms import AbstractTerm
from oneproj.rates.defaults import DEFAULTS
from oneproj.rates.terms import Parts, Rate, parts
from oneproj.vectors.arithmetic import Vector, assign, snapshot

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class Offset(NamedTuple):
    """A direction in one parameter tensor that moves all scores of a rate alike.

    Attributes:
        tensor: Which of the parameters it changes.
        direction: By what.
        effects: By how much it moves the scores of each rate.
    """

    tensor: int
    direction: Tensor
    effects: tuple[float, ...]


def find_offsets(parameters: Vector, rates: Sequence[Rate]) -> list[Offset]:
    """Return directions that move all scores of a rate alike, whichever rate it is.

    Each lies in one tensor of at most ``DEFAULTS.offset_entries`` entries: a bias, the
    weights of a column of ones, a vector with an intercept in it. It is found by least
    squares from the gradients of the scores of some rows.

    Example:
        >>> import oneproj
        >>> w, b = (torch.ones(n, requires_grad=True) for n in (2, 1))
        >>> x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
        >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w + b, data=x)
        >>> find_offsets([w, b], [accepted])
        [Offset(tensor=1, direction=tensor([1.]), effects=(1.0,))]
    """
    small = [
        k for k, p in enumerate(parameters) if p.numel() <= DEFAULTS.offset_entries
    ]
    if not small:
        return []
    tensors = [parameters[k] for k in small]
    count = DEFAULTS.rows_per_entry * max(p.numel() for p in tensors)
    each = [rate.score_gradients(tensors, count) for rate in rates]
    found: list[Offset] = []
    for k, own in zip(small, zip(*each, strict=True), strict=True):
        for moved in (torch.cat(own), *own):  # of all rates, or of one of them
            offset = _offset(k, moved, own)
            if offset is None or any(_is_same(offset, other) for other in found):
                continue
            direction = offset.direction.to(parameters[k]).view_as(parameters[k])
            found.append(offset._replace(direction=direction))
    return found


def _offset(tensor: int, moved: Tensor, own: Sequence[Tensor]) -> Offset | None:
    """The direction in one tensor that moves some scores by 1, if there is one.

    Args:
        tensor: Which one.
        moved: Gradients of these scores by the tensor, one row for each score.
        own: The same for the scores of every rate, each of which must move alike.
    """
    rows, entries = moved.shape
    if rows < DEFAULTS.rows_per_entry * entries or not bool(moved.any()):
        return None
    wanted = moved.new_ones(rows, 1)
    direction = torch.linalg.lstsq(moved, wanted, driver="gelsd").solution
    moves = [each @ direction for each in own]
    effects = [each.median() for each in moves]
    pairs = [(moved @ direction, wanted), *zip(moves, effects, strict=True)]
    if max(float((a - b).abs().max()) for a, b in pairs) > DEFAULTS.uneven:
        return None
    return Offset(tensor, direction, tuple(map(float, effects)))


def _is_same(one: Offset, other: Offset) -> bool:
    """Whether two offsets move the scores of every rate alike."""
    return np.allclose(one.effects, other.effects, atol=DEFAULTS.uneven)


class _Staircase:
    """A rate as a function of how far its scores are moved."""

    def __init__(self, rate: Rate) -> None:
        """Evaluate the scores, once."""
        excess = rate.excess()
        self.excess = excess.double().cpu().numpy()
        n, weights = len(self.excess), rate.weights
        self._weights = np.ones(n) if weights is None else weights.cpu().numpy()
        self._counted = rate.counted.cpu().numpy()
        largest = np.abs(self.excess).max() + abs(rate.threshold)
        self.rounding = DEFAULTS.roundings * torch.finfo(excess.dtype).eps * largest

    def steps(self, effect: float) -> Array:
        """How far to go in a direction until each row changes its decision."""
        found: Array = -self.excess / effect
        return found

    def values(self, effect: float, lengths: Array) -> Array:
        """The rate after moves of these lengths in a direction with this effect."""
        steps = self.steps(effect)
        order = np.argsort(steps)
        accepting = self._weights * self._counted
        rejecting = self._weights - accepting
        if effect < 0:  # a row that is passed becomes rejected
            accepting, rejecting = rejecting, accepting
        passed = np.searchsorted(steps[order], lengths)
        before, after = (
            np.concatenate([[0.0], np.cumsum(each[order])])
            for each in (accepting, rejecting)
        )
        counted = before[passed] + (after[-1] - after[passed])
        shares: Array = counted / self._weights.sum()
        return shares


class ThresholdMover:
    """Moves parameters along offsets until counts hold, as far as that alone can.

    Args:
        parameters: Changed in place.
        constraints: Those with rates; others are left to the caller.

    Example:
        >>> import oneproj
        >>> w, b = (torch.ones(n, requires_grad=True) for n in (2, 1))
        >>> x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
        >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w + b, data=x)
        >>> few = {"accepted": accepted <= 0.1}
        >>> ThresholdMover([w, b], few).move({"accepted": accepted.value() - 0.1})
        True
        >>> accepted.value(), w.tolist()
        (0.1, [1.0, 1.0])
    """

    def __init__(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> None:
        """Find the offsets."""
        self._parameters = parameters
        self._parts: dict[str, Parts] = {n: parts(c) for n, c in constraints.items()}
        each = {id(r.original): r for p in self._parts.values() for r in p.rates}
        self._at = {key: k for k, key in enumerate(each)}
        self._rates = list(each.values())
        self.offsets = find_offsets(parameters, self._rates)

    def move(self, residuals: Mapping[str, float]) -> bool:
        """Move the parameters to the least sum of violations, in place.

        Of several such points the one with the shortest move is taken. Terms that are
        no rates are assumed not to change.

        Args:
            residuals: Of the constraints, at the parameters.

        Returns:
            Whether the parameters moved.
        """
        if not self.offsets:
            return False
        stairs = [_Staircase(rate) for rate in self._rates]
        rest = self._rest(stairs, residuals)
        total = sum(max(residuals[name], 0.0) for name in self._parts)
        point, moved = snapshot(self._parameters), False
        for offset in self.offsets:
            length, least = self._shortest(offset, stairs, rest)
            if least < total:
                point[offset.tensor] += length * offset.direction
                for stair, effect in zip(stairs, offset.effects, strict=True):
                    stair.excess = stair.excess + length * effect
                moved, total = True, least
        if moved:
            assign(self._parameters, point)
        return moved

    def _rest(
        self, stairs: Sequence[_Staircase], residuals: Mapping[str, float]
    ) -> dict[str, float]:
        """What constraints have beside their rates: constants, and other terms."""
        here, rest = np.zeros(1), {}
        for name, found in self._parts.items():
            rest[name] = found.constant
            if len(found.rates) < len(found.weighted):
                counted = sum(
                    a * float(stairs[self._at[id(t.original)]].values(1.0, here)[0])
                    for a, t in found.weighted
                    if isinstance(t, Rate)
                )
                rest[name] = residuals[name] - counted
        return rest

    def _shortest(
        self, offset: Offset, stairs: Sequence[_Staircase], rest: Mapping[str, float]
    ) -> tuple[float, float]:
        """The length of the best move along an offset, and the violations there."""
        touched = [
            (stair, effect)
            for stair, effect in zip(stairs, offset.effects, strict=True)
            if abs(effect) > DEFAULTS.uneven
        ]
        steps = np.unique(np.concatenate([s.steps(effect) for s, effect in touched]))
        room = 2.0 * max(s.rounding / abs(effect) for s, effect in touched)
        lengths = _between(steps, room)
        values = [
            stair.values(effect, lengths)
            if abs(effect) > DEFAULTS.uneven
            else stair.values(1.0, np.zeros(1))
            for stair, effect in zip(stairs, offset.effects, strict=True)
        ]
        total = np.zeros(len(lengths))
        for name, found in self._parts.items():
            value = rest[name] + sum(
                a * values[self._at[id(t.original)]]
                for a, t in found.weighted
                if isinstance(t, Rate)
            )
            total += np.maximum(value, 0.0)
        best = min(range(len(lengths)), key=lambda k: (total[k], abs(lengths[k])))
        return float(lengths[best]), float(total[best])


def _between(steps: Array, room: float) -> Array:
    """The middle between any two steps that are not too near, and both outsides."""
    gaps = np.diff(steps)
    outside = max((steps[-1] - steps[0]) / len(steps), room) or 1.0
    middles = (steps[:-1] + gaps / 2)[gaps > room]
    return np.concatenate([[steps[0] - outside], middles, [steps[-1] + outside]])
