"""The paper's two projectors, on the library's public ``AbstractProjector``."""

from __future__ import annotations

from oneproj.projection.base import AbstractProjector
from oneproj.projection.cuts import Cuts
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian
from oneproj_paper.projectors.dual_bisection import DualBisection

PROJECTORS: dict[str, type[AbstractProjector]] = {
    projector.name: projector
    for projector in (Cuts, AugmentedLagrangian, DualBisection)
}
"""The projectors that an experiment can name: the library's, and the paper's two."""
