"""How well a score classifies a sample: error and logistic risk."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oneproj_paper.data.samples import Sample
from oneproj_paper.tasks.models import Score
from oneproj_paper.tasks.transfer import logistic_losses


@dataclass(frozen=True)
class TransferMetrics:
    """What the paper reports on the target's test sample.

    Example:
        >>> TransferMetrics(error=0.1, risk=0.25).error
        0.1
    """

    error: float
    """The share that the sign of the score classifies wrongly; 0 counts as class 1."""
    risk: float
    """The average logistic loss."""


@torch.no_grad()
def transfer_metrics(score: Score, sample: Sample) -> TransferMetrics:
    """Measure a score on a sample.

    Example:
        >>> sample = Sample(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
        >>> score = Score(1, generator=torch.Generator().manual_seed(0))
        >>> for p, value in zip(score.parameters(), (1.0, 0.0)):
        ...     _ = p.data.fill_(value)
        >>> metrics = transfer_metrics(score, sample)
        >>> metrics.error, round(metrics.risk, 4)
        (0.5, 0.8133)
    """
    s = score(sample.x)
    wrong = (s >= 0) != sample.y.bool()
    losses = logistic_losses(s.double(), sample.y)
    return TransferMetrics(float(wrong.double().mean()), float(losses.mean()))
