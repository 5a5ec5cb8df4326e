"""Train under hard constraints at the cost of SGD, with one projection at the end."""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from oneproj import logs as logs
from oneproj import sets as sets
from oneproj import theory as theory
from oneproj.certificates.certify import certify as certify
from oneproj.errors import CheckpointError as CheckpointError
from oneproj.errors import InfeasibleError as InfeasibleError
from oneproj.errors import InvalidProblemError as InvalidProblemError
from oneproj.errors import InvalidScheduleError as InvalidScheduleError
from oneproj.errors import NonFiniteError as NonFiniteError
from oneproj.errors import OneprojError as OneprojError
from oneproj.errors import OneprojWarning as OneprojWarning
from oneproj.errors import ProjectionFailed as ProjectionFailed
from oneproj.methods.one_projection import OneProjection as OneProjection
from oneproj.penalties import Hinge as Hinge
from oneproj.penalties import Softplus as Softplus
from oneproj.problem import Problem as Problem
from oneproj.projection.project import project as project
from oneproj.results import Certificate as Certificate
from oneproj.results import Counts as Counts
from oneproj.results import Measure as Measure
from oneproj.results import Projection as Projection
from oneproj.results import Solution as Solution
from oneproj.results import Status as Status
from oneproj.results import Update as Update
from oneproj.solve import solve as solve
from oneproj.terms.averages import mean as mean
from oneproj.terms.functions import function as function

try:
    __version__ = _version("oneproj")
except _PackageNotFoundError:  # a source tree on the path
    __version__ = "unknown: oneproj is not installed"
