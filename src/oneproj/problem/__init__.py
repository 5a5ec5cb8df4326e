"""The problem: what is minimised, under which constraints.

``functions`` has the two terms that users write, ``mean`` and ``function``; ``terms``
defines terms, sums of them and constraints. ``data`` makes batches. ``checks`` tests a
term before a run relies on it; ``modes`` puts modules into evaluation mode for it.
``problem`` puts them together.
"""

from oneproj.problem.problem import Problem as Problem
from oneproj.problem.terms import AbstractTerm as AbstractTerm
from oneproj.problem.terms import Constraint as Constraint
