"""Closed-form sets as constraints on one parameter tensor: ``Ball(1.0).on(w)``.

- ``Box``: bounds on every entry; ``Halfspace``: a linear inequality; ``Affine``: linear
  equations;
- ``Simplex``: probability vectors; ``L1Ball``: a bound on the sum of absolute values;
- ``Ball``: a bound on the norm; ``SecondOrderCone``: one entry bounds that of the rest;
- ``SpectralBall``, ``NuclearBall`` and ``Rank``: bounds on the singular values of a
  matrix.

Each has a residual that is <= 0 on the set, and the nearest point; ``on`` makes a
``SetConstraint``. A set of your own is an ``AbstractSet``; ``oneproj.projection.sets``
says how they are made.
"""

from oneproj.projection.sets import AbstractSet as AbstractSet
from oneproj.projection.sets import Affine as Affine
from oneproj.projection.sets import Ball as Ball
from oneproj.projection.sets import Box as Box
from oneproj.projection.sets import Halfspace as Halfspace
from oneproj.projection.sets import L1Ball as L1Ball
from oneproj.projection.sets import NuclearBall as NuclearBall
from oneproj.projection.sets import Rank as Rank
from oneproj.projection.sets import SecondOrderCone as SecondOrderCone
from oneproj.projection.sets import SetConstraint as SetConstraint
from oneproj.projection.sets import Simplex as Simplex
from oneproj.projection.sets import SpectralBall as SpectralBall
