"""Rates of decisions: the bound is on the count, the gradient is a surrogate's.

``positive_rate``, ``false_positive_rate``, ``false_negative_rate``,
``true_positive_rate``, ``true_negative_rate`` and ``error_rate`` are terms like
``oneproj.mean``: they can be added, scaled, compared. ``precision`` can be bounded from
below. ``parts`` takes a constraint apart; ``Rate.counts`` says how many rows of how
many are counted. ``upper_surrogate`` makes a convex constraint that implies a bound on
rates.

``calibrate`` chooses among thresholds or caps one whose constraints hold on new data,
and returns a ``Calibration``. ``neyman_pearson_threshold`` and
``abstention_thresholds`` (which makes ``AbstentionThresholds``) choose among the
scores of held-out rows.
"""

from oneproj.rates.calibration import AbstentionThresholds as AbstentionThresholds
from oneproj.rates.calibration import Calibration as Calibration
from oneproj.rates.calibration import abstention_thresholds as abstention_thresholds
from oneproj.rates.calibration import calibrate as calibrate
from oneproj.rates.calibration import (
    neyman_pearson_threshold as neyman_pearson_threshold,
)
from oneproj.rates.correction import upper_surrogate as upper_surrogate
from oneproj.rates.functions import Precision as Precision
from oneproj.rates.functions import error_rate as error_rate
from oneproj.rates.functions import false_negative_rate as false_negative_rate
from oneproj.rates.functions import false_positive_rate as false_positive_rate
from oneproj.rates.functions import positive_rate as positive_rate
from oneproj.rates.functions import precision as precision
from oneproj.rates.functions import true_negative_rate as true_negative_rate
from oneproj.rates.functions import true_positive_rate as true_positive_rate
from oneproj.rates.terms import Parts as Parts
from oneproj.rates.terms import Rate as Rate
from oneproj.rates.terms import RateCounts as RateCounts
from oneproj.rates.terms import parts as parts
