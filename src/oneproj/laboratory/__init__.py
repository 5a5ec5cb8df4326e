"""The theory laboratory: problems with known answers that put the theorems to the test.

``oneproj theory`` executes the three schedules of ``oneproj.theory`` to the letter on
analytic problems, many times over, and counts how often the promise is kept. A
schedule has some 10^10 steps, so a compiled twin of the inner loop makes them
(``pip install oneproj[laboratory]``); a test zips it with ``oneproj.OneProjection``.

Example:
    >>> from oneproj import laboratory
    >>> problem = laboratory.smooth_problem()
    >>> problem.start_measure > problem.epsilon, problem.schedule.within_theorem
    (True, True)
"""

from __future__ import annotations

from oneproj.laboratory.base import AbstractLaboratoryProblem
from oneproj.laboratory.bridge import as_problem
from oneproj.laboratory.inner_gaps import InnerGaps, measure_inner_gaps
from oneproj.laboratory.obstruction import obstruction_problem, run_obstruction
from oneproj.laboratory.plans import Plan, make_plans
from oneproj.laboratory.problems import (
    all_problems,
    nonconvex_problem,
    nonsmooth_problem,
    smooth_problem,
)
from oneproj.laboratory.records import Record
from oneproj.laboratory.report import check_theorems
from oneproj.laboratory.twin import Twin

__all__ = [
    "AbstractLaboratoryProblem",
    "InnerGaps",
    "Plan",
    "Record",
    "Twin",
    "all_problems",
    "as_problem",
    "check_theorems",
    "make_plans",
    "measure_inner_gaps",
    "nonconvex_problem",
    "nonsmooth_problem",
    "obstruction_problem",
    "run_obstruction",
    "smooth_problem",
]
