"""The evaluator in coordinates: places instead of parameters, and what they taught."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.nonconvex.curvature import Curvature
from oneproj.projection.nonconvex.frame import Frame
from oneproj.projection.nonconvex.model import Model, Place
from oneproj.schema import check_names, check_tensor
from oneproj.vectors.arithmetic import Array, Vector
from oneproj.vectors.space import AbstractPacked

ROUNDING = 1e-13
"""A move of a smaller share of the displacement says nothing about the curvature."""
EQUAL = 1e-9
"""Squared distances that differ by a smaller share are equal for every purpose."""


@dataclass(frozen=True)
class Carried:
    """What one projection knows that helps the next one, from a point nearby."""

    names: tuple[str, ...]
    mu: Array
    bend: Array
    frame: Frame
    curvature: Curvature

    def state(self) -> dict[str, Any]:
        """All of it as plain data, but for the names."""
        return {
            "mu": torch.from_numpy(self.mu),
            "bend": torch.from_numpy(self.bend),
            "frame": self.frame.state(),
            "curvature": self.curvature.state(),
        }

    @classmethod
    def of_state(
        cls,
        state: Mapping[str, Any],
        names: tuple[str, ...],
        like: Vector,
        capacity: int,
        memory: int,
    ) -> Carried:
        """What such a state was made of."""
        m = len(names)
        check_names(state, "models", ("mu", "bend", "frame", "curvature"))
        for name in ("mu", "bend"):
            check_tensor(state[name], name, (m,), torch.float64)
        mu, bend = (np.array(state[name].numpy()) for name in ("mu", "bend"))
        frame = Frame(capacity)
        frame.load_state(state["frame"], like)
        curvature = Curvature(memory)
        curvature.load_state(state["curvature"], m, capacity)
        return cls(names, mu, bend, frame, curvature)


class Chart:
    """Goes to displacements given in coordinates, and learns from what it sees there.

    A frame that is full is replaced by a new one, which forgets the curvature.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        memory: int,
        capacity: int,
        carried: Carried | None,
    ) -> None:
        """Start where the evaluator's parameters are."""
        self.names = tuple(evaluator.constraints)
        self._evaluator, self._memory, self._capacity = evaluator, memory, capacity
        m = len(self.names)
        self.bend: Array = np.zeros(m)
        """By how much the last linearisation was too low, per squared length."""
        self._longest = 0.0, self.bend
        self._frame, self._curvature = Frame(capacity), Curvature(memory)
        if carried is not None:
            self.bend = carried.bend
            if carried.frame.size + 2 * m <= carried.frame.room == capacity:
                self._frame, self._curvature = carried.frame, carried.curvature
        self._last: Place | None = None
        self.best: Place | None = self.place(np.zeros(capacity), evaluator.first)
        """The evaluator's best point; None if it is from before the present frame."""
        self.best_half = 0.0
        """Half its squared distance."""

    @property
    def moves(self) -> int:
        """From how many moves the curvature is known."""
        return self._curvature.moves

    def place(self, d: Array, look: Evaluation) -> Place:
        """What was seen at the displacement d."""
        return self._place(self._coordinates(look, self._frame), d, look)

    def _coordinates(self, look: Evaluation, frame: Frame) -> Array:
        pack = self._evaluator.space.pack
        pulls = [pack(look.gradients[name]) for name in self.names]
        return frame.all_coordinates(pulls)

    def _place(self, J: Array, d: Array, look: Evaluation) -> Place:
        rows, half = np.vstack([J, d]), 0.5 * float(d.dot(d))
        margins = self._evaluator.margins
        c = np.array([look.values[name] + margins[name] for name in self.names])
        return Place(rows[-1], c, rows[:-1], rows, look, half)

    def visit(self, d: Array) -> Place | None:
        """The place at d, or None where a constraint is not a number, or too steep.

        None also if every gradient so far is zero: then there is nowhere to go.
        """
        if self._frame.size == 0:
            return None
        try:
            look = self._evaluator.move(self._frame.move(d, math.sqrt(d.dot(d))))
            self._last = place = self.place(d, look)
        except NonFiniteError:
            return None
        if self._evaluator.best is look:
            self.best, self.best_half = place, place.half
        return place

    def jump(self, moved: Vector) -> Place | None:
        """The place at a displacement, in a new frame; None as for a visit."""
        try:
            look = self._evaluator.move(moved)
            place = self._in_new_frame(self._evaluator.space.pack(moved), look)
        except NonFiniteError:
            return None
        if self._evaluator.best is look:
            self.best_half = place.half
        return place

    def prefer(self, place: Place) -> bool:
        """Make a place the evaluator's best point if it is; whether it is now.

        The evaluator ranks feasible points by their distance alone, and near the answer
        distances differ by rounding.
        """
        evaluator = self._evaluator
        if place is self._last and place.look is not evaluator.best:
            equal = place.half <= (1.0 + EQUAL) * self.best_half
            if place.look.worst <= 0 and equal:
                d = place.d
                evaluator.prefer(place.look, self._frame.move(d, math.sqrt(d.dot(d))))
                self.best, self.best_half = place, place.half
        return evaluator.best is place.look

    def remember(self, start: Place, end: Place) -> None:
        """Learn the curvature from the move between two places."""
        move = end.d - start.d
        square = float(move.dot(move))
        if square > ROUNDING**2 * end.half:
            self._curvature.add(move, end.J - start.J)
            error = end.c - start.c - start.J.dot(move)
            self.bend = np.maximum(error / square, 0.0)
            if square > self._longest[0]:
                self._longest = square, self.bend

    def forget(self) -> None:
        """Begin to learn the curvature anew: what was seen of it was far away."""
        self.bend = np.zeros(len(self.names))
        self._longest, self._curvature = (0.0, self.bend), Curvature(self._memory)

    def model(self, place: Place, mu: Array) -> Model:
        """The model at a place, with the curvature for these multipliers."""
        rows = place.rows
        model = Model(rows, self._curvature.divide(rows, mu))
        # The estimate is, but for the rounding of many nearly equal moves.
        return model if model.is_definite else Model.flat(rows)

    def refreshed(self, place: Place) -> Place:
        """The place itself; in a new frame if the present one has no room to look."""
        if self._frame.size + len(self.names) <= self._capacity:
            return place
        return self._in_new_frame(self._frame.vector(place.d), place.look)

    def best_place(self) -> Place:
        """The evaluator's best point, which may be that of a step not taken."""
        evaluator = self._evaluator
        if self.best is None or self.best.look is not evaluator.best:
            moved = evaluator.space.displacement(evaluator.best_point)
            self.best = self._in_new_frame(moved, evaluator.best)
            # It may be from a look of the evaluator's own, which no visit has measured.
            self.best_half = self.best.half
        return self.best

    def price(self) -> float:
        """What the way to the best point cost for each unit of the worst residual.

        A penalty must exceed it, or the start is the better point, and a model that
        knows no curvature, as in a new frame, undoes the whole way.
        """
        lower = self._evaluator.first.worst - max(self._evaluator.best.worst, 0.0)
        return self.best_half / lower if lower > 0 else 0.0

    def imbalance(self, mu: Array) -> float:
        """``|d + sum_j mu_j grad c_j|`` at the best point, over the parameters."""
        evaluator, weights = self._evaluator, mu.tolist()
        evaluator.return_to_best()
        pulls = [evaluator.best.gradients[name] for name in self.names]
        largest = min(torch.finfo(t.dtype).max for t in evaluator.parameters)
        if not max((abs(weight) for weight in weights), default=0.0) < largest:
            return math.inf  # of an empty set: no finite weight balances it
        here = [parameter.detach() for parameter in evaluator.parameters]
        return evaluator.space.length(here, weights, pulls)

    def carry(self, mu: Array) -> Carried:
        """What helps a projection onto the same constraints from a point nearby."""
        bend = self._longest[1]
        self._frame.forget_last()
        # Copies in one piece: sums over them are then the same after a resume.
        return Carried(self.names, mu.copy(), bend.copy(), self._frame, self._curvature)

    def _in_new_frame(self, moved: AbstractPacked, look: Evaluation) -> Place:
        self._evaluator.keep_best()
        frame = Frame(self._capacity)
        J = self._coordinates(look, frame)
        self._frame, self._curvature = frame, Curvature(self._memory)
        place = self._place(J, frame.coordinates(moved), look)
        self.best = place if look is self._evaluator.best else None
        return place
