"""The paper's two tasks: data and a model become a ``Problem``; metrics judge it.

Example:
    >>> from oneproj_paper import tasks
    >>> experiment = tasks.build("abstention-gaussian", seed=0)
    >>> {name: round(c, 2) for name, c in experiment.problem.residuals().items()}
    {'class 0 error': ..., 'class 1 error': ...}
"""

from __future__ import annotations

from oneproj_paper.tasks.abstention import abstention_problem, slackened
from oneproj_paper.tasks.abstention_metrics import AbstentionMetrics, abstention_metrics
from oneproj_paper.tasks.models import Score, Scores, count_parameters
from oneproj_paper.tasks.paper import Experiment, build
from oneproj_paper.tasks.settings import PAPER, MethodSettings, Settings
from oneproj_paper.tasks.source_reference import SourceFit, fit_source
from oneproj_paper.tasks.transfer import source_cap, transfer_problem
from oneproj_paper.tasks.transfer_metrics import TransferMetrics, transfer_metrics

__all__ = [
    "PAPER",
    "AbstentionMetrics",
    "Experiment",
    "MethodSettings",
    "Score",
    "Scores",
    "Settings",
    "SourceFit",
    "TransferMetrics",
    "abstention_metrics",
    "abstention_problem",
    "build",
    "count_parameters",
    "fit_source",
    "slackened",
    "source_cap",
    "transfer_metrics",
    "transfer_problem",
]
