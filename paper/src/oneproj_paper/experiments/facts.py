"""The parts of a record: what a run was made of and what it left. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Values = Mapping[str, float]


@dataclass(frozen=True)
class DataFacts:
    """What a run was trained and judged on."""

    stand_in: bool
    """Whether another sample takes the place of the paper's."""
    note: str
    variables: int
    """Raw ones, before features are made of them."""
    inputs: int
    """Of the model."""
    parameters: int
    counts: Mapping[str, tuple[int, int]]
    """Examples of class 0 and of class 1 in train, validation, test and source."""


@dataclass(frozen=True)
class MeasureFacts:
    """A measure of a certificate; see ``oneproj.Measure``."""

    name: str
    value: float
    bound: float | None
    holds: bool | None
    source: str
    error: float


@dataclass(frozen=True)
class CertificateFacts:
    """A certificate; see ``oneproj.Certificate``."""

    measures: tuple[MeasureFacts, ...]
    multipliers: Values
    holds: bool


@dataclass(frozen=True)
class ProjectionFacts:
    """The last projection of a run; see ``oneproj.Projection``."""

    distance: float
    evaluations: int
    kkt_residual: float


@dataclass(frozen=True)
class CountFacts:
    """What a run used; see ``oneproj.Counts``."""

    objective_gradients: int
    constraint_gradients: int
    constraint_passes: int
    projections: int
