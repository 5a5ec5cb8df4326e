"""Closed-form sets as constraints on one parameter tensor: ``Ball(1.0).on(w)``.

- ``Box``: bounds on every entry; ``Halfspace``: a linear inequality; ``Affine``: linear
  equations;
- ``Simplex``: probability vectors; ``L1Ball``: a bound on the sum of absolute values;
- ``Ball``: a bound on the norm; ``SecondOrderCone``: one entry bounds that of the rest;
- ``SpectralBall``, ``NuclearBall`` and ``Rank``: bounds on the singular values of a
  matrix.

Each has a residual that is <= 0 on the set, and the nearest point; ``on`` makes a
``SetConstraint``. A set of your own is an ``AbstractSet``.
"""

from oneproj.sets.balls import Ball as Ball
from oneproj.sets.balls import L1Ball as L1Ball
from oneproj.sets.balls import SecondOrderCone as SecondOrderCone
from oneproj.sets.balls import Simplex as Simplex
from oneproj.sets.base import AbstractSet as AbstractSet
from oneproj.sets.base import SetConstraint as SetConstraint
from oneproj.sets.boxes import Affine as Affine
from oneproj.sets.boxes import Box as Box
from oneproj.sets.boxes import Halfspace as Halfspace
from oneproj.sets.matrices import NuclearBall as NuclearBall
from oneproj.sets.matrices import Rank as Rank
from oneproj.sets.matrices import SpectralBall as SpectralBall
