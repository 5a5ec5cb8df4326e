"""The theory laboratory: problems with known answers that put the theorems to the test.

``oneproj-paper theory`` executes the three schedules of ``oneproj.theory`` to the
letter on analytic problems, many times over, and counts how often the promise is kept.
A schedule has some 10^10 steps, so a compiled twin of the inner loop makes them; a test
zips it with ``oneproj.OneProjection``.

Example:
    >>> from oneproj_paper import laboratory
    >>> problem = laboratory.smooth_problem()
    >>> problem.start_measure > problem.epsilon, problem.schedule.within_theorem
    (True, True)
"""

from __future__ import annotations

from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.bridge import as_problem
from oneproj_paper.laboratory.inner_gaps import InnerGaps, measure_inner_gaps
from oneproj_paper.laboratory.obstruction import obstruction_problem, run_obstruction
from oneproj_paper.laboratory.plans import Plan, make_plans
from oneproj_paper.laboratory.problems import (
    all_problems,
    nonconvex_problem,
    nonsmooth_problem,
    smooth_problem,
)
from oneproj_paper.laboratory.records import Record
from oneproj_paper.laboratory.report import check_theorems
from oneproj_paper.laboratory.twin import Twin

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
