"""Scikit-learn estimators that keep a budget on decisions, and say what new rows get.

- ``NeymanPearsonClassifier``: few misses under a cap on false positives.
- ``FairClassifier``: rates that differ little between groups.
- ``AbstainingClassifier``: abstains rather than err too often on a class.
- ``TransferClassifier``: learns a new table and stays good on an old one.
- ``ConstrainedClassifier``: constraints of your own.

``plot`` has their pictures, as Displays. This needs the extra ``learn``.
"""

from oneproj.progress import require as _require

try:
    from oneproj.learn import plot as plot
    from oneproj.learn.capped import AbstainingClassifier as AbstainingClassifier
    from oneproj.learn.capped import NeymanPearsonClassifier as NeymanPearsonClassifier
    from oneproj.learn.constrained import ConstrainedClassifier as ConstrainedClassifier
    from oneproj.learn.fair import FairClassifier as FairClassifier
    from oneproj.learn.transfer import TransferClassifier as TransferClassifier
except ModuleNotFoundError:
    _require("sklearn", "learn")  # if that is what is missing, it names the extra
    raise
