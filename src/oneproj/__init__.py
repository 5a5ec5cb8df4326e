"""Train under hard constraints at the cost of SGD, with one projection at the end.

State a problem: ``mean`` of a function over data, the ``largest`` of its values, or
``function`` of the parameters alone; ``<=`` or ``>=`` makes a constraint of them, and
so does a set of ``sets``;
``rates`` has shares of decisions, such as a false positive rate, whose bounds hold for
the counts; ``Problem`` puts them together.

Solve it: ``solve`` does all, ``logs`` follow a run, and a ``Checkpoint`` saves it.
``Defaults`` are the numbers behind what it chooses. In a loop of your own,
``AutoPenalty`` is the penalty, which finds its strength, around ``OneProjection`` or
another optimiser; ``Hinge`` and ``Softplus`` are penalties of a given strength, and
``frozen_statistics`` is for batch norm.
``project`` makes a model feasible that is trained already, and ``certify`` judges any
point. ``theory`` has the paper's schedules. ``methods`` has the other methods, as
objects with options, and what one of your own is made of; ``oracles`` has what an
oracle of your own is made of.

``confirm`` says whether constraints hold on new data, from rows that training did not
see: a ``Confirmation``, with a ``ConstraintCheck`` for each.

``learn`` has scikit-learn estimators. It needs an extra, so import it by itself:
``from oneproj.learn import FairClassifier``.

What comes back: ``Solution``, with its ``Status``, ``Certificate`` (of ``Measure``),
``Counts`` and ``Projection``; a callback gets an ``Update``.

What is raised is an ``OneprojError``: ``InvalidProblemError`` for what does not fit,
``InvalidScheduleError`` where a theorem does not hold, ``NonFiniteError`` for NaN and
inf, ``CheckpointError``, ``RankError`` where another process has ended, and
``ProjectionFailed``, of which ``InfeasibleError`` says that no feasible point was
found. Warnings are ``OneprojWarning``.
"""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from oneproj import logs as logs
from oneproj import methods as methods
from oneproj import oracles as oracles
from oneproj import rates as rates
from oneproj import sets as sets
from oneproj import theory as theory
from oneproj.certificates.certify import certify as certify
from oneproj.defaults import Defaults as Defaults
from oneproj.errors import CheckpointError as CheckpointError
from oneproj.errors import InfeasibleError as InfeasibleError
from oneproj.errors import InvalidProblemError as InvalidProblemError
from oneproj.errors import InvalidScheduleError as InvalidScheduleError
from oneproj.errors import NonFiniteError as NonFiniteError
from oneproj.errors import OneprojError as OneprojError
from oneproj.errors import OneprojWarning as OneprojWarning
from oneproj.errors import ProjectionFailed as ProjectionFailed
from oneproj.errors import RankError as RankError
from oneproj.methods.auto_penalty import AutoPenalty as AutoPenalty
from oneproj.methods.one_projection import OneProjection as OneProjection
from oneproj.oracles.penalties import Hinge as Hinge
from oneproj.oracles.penalties import Softplus as Softplus
from oneproj.problem.functions import function as function
from oneproj.problem.functions import largest as largest
from oneproj.problem.functions import mean as mean
from oneproj.problem.modes import frozen_statistics as frozen_statistics
from oneproj.problem.problem import Problem as Problem
from oneproj.projection.project import project as project
from oneproj.rates.confirm import Confirmation as Confirmation
from oneproj.rates.confirm import ConstraintCheck as ConstraintCheck
from oneproj.rates.confirm import confirm as confirm
from oneproj.results import Certificate as Certificate
from oneproj.results import Counts as Counts
from oneproj.results import Measure as Measure
from oneproj.results import Projection as Projection
from oneproj.results import Solution as Solution
from oneproj.results import Status as Status
from oneproj.results import Update as Update
from oneproj.training.checkpoints import Checkpoint as Checkpoint
from oneproj.training.solve import solve as solve

try:
    __version__ = _version("oneproj")
except _PackageNotFoundError:  # a source tree on the path
    __version__ = "unknown: oneproj is not installed"
