"""What every laboratory problem offers: its functions, its schedule and its judge."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from oneproj.theory import Schedule
from oneproj.vectors.arithmetic import Array, Mask
from oneproj_paper.laboratory.dent import DentedDisc
from oneproj_paper.laboratory.objectives import Saddle
from oneproj_paper.laboratory.shapes import Disc


@dataclass(frozen=True, kw_only=True)
class AbstractLaboratoryProblem(ABC):
    """``min f(x)`` subject to ``g(x) <= 0`` in the unit ball, with all answers known.

    Attributes:
        key: short name, used for files.
        title: what the problem is.
        objective: f.
        noise: the stochastic gradient is grad f plus +-noise in each coordinate.
        start: x_0.
        epsilon: the target of the theorem.
    """

    key: str
    title: str
    objective: Saddle
    noise: float
    start: tuple[float, float]
    epsilon: float

    @property
    @abstractmethod
    def set(self) -> Disc | DentedDisc:
        """The feasible set, with g, its gradient and its projection."""

    @property
    @abstractmethod
    def measure_name(self) -> str:
        """How the paper writes the measure."""

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The theorem's schedule, with the smallest K that it allows."""

    @property
    @abstractmethod
    def solutions(self) -> Array:
        """Stationary points of the constrained problem, shape (n, 2)."""

    @abstractmethod
    def measure(self, x: Array) -> Array:
        """What the theorem bounds, if outer iterate x were the selected one."""

    @abstractmethod
    def achieved(self, selected: Array, output: Array) -> Array:
        """What the theorem bounds, for each selected iterate and its projection."""

    @abstractmethod
    def meets(self, selected: Array, output: Array) -> Mask:
        """Whether the theorem's statement holds for each output, all of it.

        Args:
            selected: the outer iterates x_J.
            output: their projections.
        """

    @property
    def gradient_bound(self) -> float:
        """G_f: the largest gradient plus the length of the noise."""
        return self.objective.lipschitz + math.sqrt(2.0) * self.noise

    @property
    def start_point(self) -> Array:
        """x_0 as an array."""
        return np.array(self.start)

    @property
    def start_measure(self) -> float:
        """The measure at x_0, which must exceed epsilon."""
        return float(self.measure(self.start_point[None])[0])
