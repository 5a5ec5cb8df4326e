"""Closed-form sets: a residual that is <= 0 on the set, and the nearest point.

A set becomes a constraint on one parameter tensor by ``.on(tensor)``. Its residual is
the signed distance to its boundary, so its gradient has norm 1 everywhere outside:
in the words of Assumption 1, ``G_g = sigma = 1``.
"""

from oneproj.projection.sets.balls import Ball as Ball
from oneproj.projection.sets.base import AbstractSet as AbstractSet
from oneproj.projection.sets.base import SetConstraint as SetConstraint
from oneproj.projection.sets.box import Box as Box
from oneproj.projection.sets.cone import SecondOrderCone as SecondOrderCone
from oneproj.projection.sets.linear import Affine as Affine
from oneproj.projection.sets.linear import Halfspace as Halfspace
from oneproj.projection.sets.matrices import NuclearBall as NuclearBall
from oneproj.projection.sets.matrices import Rank as Rank
from oneproj.projection.sets.matrices import SpectralBall as SpectralBall
from oneproj.projection.sets.simplex import L1Ball as L1Ball
from oneproj.projection.sets.simplex import Simplex as Simplex
