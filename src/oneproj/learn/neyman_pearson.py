"""A classifier with few misses under a cap on false positives."""

from __future__ import annotations

from typing import Any, Self

from oneproj.learn.base import AbstractThresholdClassifier, check_share
from oneproj.learn.capped import AbstractCappedClassifier, Cap
from oneproj.learn.models import ModelLike


class NeymanPearsonClassifier(AbstractCappedClassifier, AbstractThresholdClassifier):
    """Miss few positives while at most a share ``alpha`` of negatives is flagged.

    With a confidence, the promise is about new rows: over the draw of the training
    rows, the false positive rate of the fitted classifier on rows from the same source
    is at most alpha, with at least this probability. It holds for every sample size
    and every distribution of independent rows. With ``confidence=None`` the cap is on
    the false positives among the rows that were trained on, exactly, and nothing is
    promised about new ones.

    A logistic score is trained, then shifted to have few misses under the cap, counted
    on the decisions for negative rows. Then the threshold is chosen on negative rows
    that training did not see: the smallest of their scores that is high enough by the
    exact binomial rule of Tong, Feng and Li (2018). If there are too few of them for
    that, a warning says how many are needed, the threshold stays the trained one, and
    ``guaranteed_`` is False. The columns are standardised inside.

    Args:
        alpha: Cap on the false positive rate, between 0 and 1.
        confidence: With which the cap holds on new rows, between 0 and 1; or None.
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on the weights, as in scikit-learn's
            ``LogisticRegression``: the sum of their squares, divided by ``2 C n``, is
            added to the mean over n rows that is minimised. Intercepts are free;
            infinity for no penalty.
        steps: Stochastic gradients of the training of the score.
        validation_fraction: Share of the negative rows held out for the threshold.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    Attributes:
        guaranteed_: Whether the cap is promised for new rows.

    The positive class is the second of the sorted labels. There are no probabilities:
    the score is trained for one operating point.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(1000, random_state=0)
        >>> clf = NeymanPearsonClassifier(alpha=0.1, random_state=0)
        >>> clf = clf.fit(X[:700], y[:700])
        >>> clf.guaranteed_
        True
        >>> negative = y[700:] == 0
        >>> float(clf.predict(X[700:])[negative].mean()) <= 0.1
        True
    """

    _refusing_sign = 1.0

    def __init__(
        self,
        alpha: float = 0.05,
        confidence: float | None = 0.95,
        *,
        model: ModelLike = None,
        C: float = 1.0,
        steps: int = 500,
        validation_fraction: float = 0.5,
        warm_start: bool = False,
        random_state: Any = None,  # noqa: ANN401 - an int, a RandomState or None
    ) -> None:
        self.alpha = alpha
        self.confidence = confidence
        self.model = model
        self.C = C
        self.steps = steps
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: object, y: object) -> Self:
        """Train the score, then choose its threshold.

        Args:
            X: A table of numbers: array, DataFrame, or sparse, which is made dense.
            y: Labels of two classes.
        """
        seed, rows = self._seed(), self._read(X, y)
        alpha = check_share("alpha", self.alpha, "It caps the false positive rate.")
        self._caps = (Cap("false positive rate", of_class=0, share=alpha),)
        self._fit_capped(rows, seed)
        self.threshold_ = float(self._cuts[0])
        return self
