"""Rates of decisions: the bound is on the count, the gradient is a surrogate's.

``positive_rate``, ``false_positive_rate``, ``false_negative_rate``,
``true_positive_rate``, ``true_negative_rate`` and ``error_rate`` are terms like
``oneproj.mean``: they can be added, scaled, compared. ``precision`` can be bounded from
below. ``parts`` takes a constraint apart; ``Rate.counts`` says how many rows of how
many are counted.
"""

from oneproj.rates.functions import error_rate as error_rate
from oneproj.rates.functions import false_negative_rate as false_negative_rate
from oneproj.rates.functions import false_positive_rate as false_positive_rate
from oneproj.rates.functions import positive_rate as positive_rate
from oneproj.rates.functions import precision as precision
from oneproj.rates.functions import true_negative_rate as true_negative_rate
from oneproj.rates.functions import true_positive_rate as true_positive_rate
from oneproj.rates.terms import Parts as Parts
from oneproj.rates.terms import Precision as Precision
from oneproj.rates.terms import Rate as Rate
from oneproj.rates.terms import RateCounts as RateCounts
from oneproj.rates.terms import parts as parts
