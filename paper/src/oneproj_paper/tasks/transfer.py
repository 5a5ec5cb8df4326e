"""Transfer learning: fit the target while the risk on the source stays below a cap.

With the logistic risk ``R_D = (1/|D|) sum log(1 + exp(-(2y - 1) s(x)))``, appendix D.1
of the paper solves ``min R_T(theta) s.t. R_S(theta) <= 1/sqrt(n_S)``. The cap is on
the source risk itself, not on its excess over the smallest one.

Shape. Both risks are convex where the score is linear: the logistic loss is convex and
the score affine in the parameters.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import softplus

from oneproj.problem.functions import Mean, mean
from oneproj.problem.problem import Problem
from oneproj.problem.terms import Curvature
from oneproj_paper.data.samples import Sample, TransferSplits
from oneproj_paper.tasks.models import Score

CONSTRAINT_NAME = "source risk"


def logistic_losses(scores: Tensor, y: Tensor) -> Tensor:
    """``log(1 + exp(-(2y - 1) s))`` of each example.

    Example:
        >>> import torch
        >>> losses = logistic_losses(torch.tensor([0.0, 50.0]), torch.tensor([0, 1]))
        >>> [round(loss, 4) for loss in losses.tolist()]
        [0.6931, 0.0]
    """
    return softplus((1 - 2 * y) * scores)


def logistic_risk(score: Score, sample: Sample) -> Mean:
    """The average logistic loss over a sample, convex where the score is linear.

    Example:
        >>> import torch
        >>> sample = Sample(torch.zeros(2, 3), torch.tensor([0, 1]))
        >>> score = Score(3, generator=torch.Generator().manual_seed(0))
        >>> logistic_risk(score, sample).curvature
        'convex'
    """

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return logistic_losses(score(x), y)

    curvature: Curvature | None = "convex" if score.is_linear else None
    return mean(losses, data=(sample.x, sample.y), curvature=curvature)


def source_cap(source: Sample) -> float:
    """The paper's cap ``1/sqrt(n_S)``, n_S counting both classes.

    Example:
        >>> from oneproj_paper.data import gaussian_transfer
        >>> round(source_cap(gaussian_transfer().source), 5)
        0.02236
    """
    return 1 / math.sqrt(len(source))


def transfer_problem(
    score: Score, data: TransferSplits, *, cap: float | None = None, radius: float
) -> Problem:
    """The constrained problem of a score on a target and a source sample.

    Args:
        score: The model; its parameters are those of the problem.
        data: Its training part is the target sample.
        cap: On the source risk; ``source_cap`` when left out.
        radius: Of the safeguard ball around the origin.

    Example:
        >>> import torch
        >>> from oneproj_paper.data import gaussian_transfer
        >>> data = gaussian_transfer(seed=0)
        >>> score = Score(10, generator=torch.Generator().manual_seed(0))
        >>> problem = transfer_problem(score, data, radius=10.0)
        >>> problem.objective.size, problem.constraints["source risk"].size
        (80, 2000)
    """
    bound = source_cap(data.source) if cap is None else cap
    return Problem(
        score.parameters(),
        objective=logistic_risk(score, data.train),
        constraints={CONSTRAINT_NAME: logistic_risk(score, data.source) <= bound},
        radius=radius,
    )
