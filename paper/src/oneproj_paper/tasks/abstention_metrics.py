"""What a classifier that may abstain does on a sample: errors, ambiguity, accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oneproj_paper.data.samples import Sample
from oneproj_paper.tasks.models import Scores


@dataclass(frozen=True)
class AbstentionMetrics:
    """Shares of a sample, between 0 and 1; NaN where there is nothing to share.

    ``decided_accuracy`` counts an example as decided where exactly one score accepts.
    The paper does not define the word. Counting examples that both scores refuse as
    decided and wrong would give 90.7 % from its own ClimSim errors and ambiguity, not
    the reported 91.7 %; on its other three data sets the two readings agree.

    Example:
        >>> AbstentionMetrics(0.1, 0.2, 0.05, 0.9).ambiguity
        0.05
    """

    class_0_error: float
    """Of class 0, the share with ``s_0 < 0``."""
    class_1_error: float
    """Of class 1, the share with ``s_1 < 0``."""
    ambiguity: float
    """The share that both scores accept."""
    decided_accuracy: float
    """Of what exactly one score accepts, the share that it accepts rightly."""


@torch.no_grad()
def abstention_metrics(scores: Scores, sample: Sample) -> AbstentionMetrics:
    """Measure a pair of scores on a sample.

    Example:
        >>> from oneproj_paper.data import gaussian_abstention
        >>> sample = gaussian_abstention(seed=0).test
        >>> scores = Scores(8, generator=torch.Generator().manual_seed(0))
        >>> _ = [p.data.zero_() for p in scores.parameters()]  # zero accepts everything
        >>> abstention_metrics(scores, sample).ambiguity
        1.0
    """
    accepts = scores(sample.x) >= 0
    own = accepts.gather(1, sample.y[:, None]).squeeze(1)
    decided = accepts.sum(dim=1) == 1
    return AbstentionMetrics(
        class_0_error=_share(~own[sample.y == 0]),
        class_1_error=_share(~own[sample.y == 1]),
        ambiguity=_share(accepts.all(dim=1)),
        decided_accuracy=_share(own[decided]),
    )


def _share(mask: torch.Tensor) -> float:
    return float(mask.double().mean())
