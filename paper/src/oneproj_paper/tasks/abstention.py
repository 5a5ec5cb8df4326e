"""Classification with abstention: least ambiguity under caps on the class errors.

Two scores accept an example for class j where ``s_j(x) >= 0``; where both do, the
classifier abstains. With ``phi(u) = [1 + u]_+``, appendix D.2 of the paper solves::

    min   (1/n)   sum_i          phi(s_0(x_i)) phi(s_1(x_i))
    s.t.  (1/n_j) sum_{y_i = j}  phi(-s_j(x_i))  <=  caps[j],    j = 0, 1

Shape. The constraints are convex where the scores are linear: ``phi`` is convex and
``s_j`` is affine in the parameters. The objective is not, even then: ``phi(s) phi(t)``
has the indefinite Hessian [[0, 1], [1, 0]] where both factors are positive.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.problem.functions import Mean, mean
from oneproj.problem.problem import Problem
from oneproj.problem.terms import Curvature
from oneproj_paper.data.samples import Sample
from oneproj_paper.tasks.models import Score, Scores

SLACK = 0.5
"""C of the paper's slack ``C / sqrt(n_j)``, the same for all of its experiments."""
CONSTRAINT_NAMES = ("class 0 error", "class 1 error")


def surrogate(u: Tensor) -> Tensor:
    """The hinge ``phi(u) = [1 + u]_+``, at least 1 where ``u >= 0``.

    Example:
        >>> import torch
        >>> surrogate(torch.tensor([-2.0, 0.0, 1.0])).tolist()
        [0.0, 1.0, 2.0]
    """
    return (1.0 + u).relu()


def ambiguity_losses(scores: Tensor) -> Tensor:
    """The product surrogate of each row: at least 1 where both scores accept.

    Example:
        >>> import torch
        >>> ambiguity_losses(torch.tensor([[0.0, 1.0], [3.0, -2.0]])).tolist()
        [2.0, 0.0]
    """
    phi = surrogate(scores)
    return phi[:, 0] * phi[:, 1]


def slackened(thresholds: Sequence[float], train: Sample) -> tuple[float, float]:
    """The caps ``threshold_j + SLACK / sqrt(n_j)`` that the paper's training enforces.

    Example:
        >>> from oneproj_paper.data import gaussian_abstention
        >>> caps = slackened((0.3, 0.3), gaussian_abstention().train)
        >>> [round(cap, 4) for cap in caps]
        [0.3204, 0.3204]
    """
    pairs = zip(thresholds, train.counts, strict=True)
    first, second = (threshold + SLACK * n**-0.5 for threshold, n in pairs)
    return first, second


def class_error(score: Score, members: Tensor) -> Mean:
    """The surrogate error ``mean phi(-s_j)`` of a class, given its examples.

    Example:
        >>> import torch
        >>> score = Score(3, generator=torch.Generator().manual_seed(0))
        >>> class_error(score, torch.ones(5, 3)).curvature
        'convex'
    """
    curvature: Curvature | None = "convex" if score.is_linear else None
    return mean(lambda x: surrogate(-score(x)), data=members, curvature=curvature)


def abstention_problem(
    scores: Scores, train: Sample, *, caps: Sequence[float], radius: float
) -> Problem:
    """The constrained problem of a pair of scores on a training sample.

    Args:
        scores: The model; its parameters are those of the problem.
        train: The training sample; each class needs an example.
        caps: On the surrogate error of class 0 and of class 1.
        radius: Of the safeguard ball around the origin, over all parameters.

    Example:
        >>> import torch
        >>> from oneproj_paper.data import gaussian_abstention
        >>> train = gaussian_abstention(seed=0).train
        >>> scores = Scores(8, generator=torch.Generator().manual_seed(0))
        >>> problem = abstention_problem(scores, train, caps=(0.32, 0.32), radius=2.0)
        >>> [(name, c.curvature, c.size) for name, c in problem.constraints.items()]
        [('class 0 error', 'convex', 600), ('class 1 error', 'convex', 600)]
    """
    if len(caps) != len(CONSTRAINT_NAMES):
        message = f"caps must be two numbers, one for each class, got {caps!r}."
        raise InvalidProblemError(message)
    constraints = {
        name: class_error(score, train.of_class(j)) <= caps[j]
        for j, (name, score) in enumerate(
            zip(CONSTRAINT_NAMES, scores.pair, strict=True)
        )
    }
    return Problem(
        scores.parameters(),
        objective=mean(lambda x: ambiguity_losses(scores(x)), data=train.x),
        constraints=constraints,
        radius=radius,
    )
