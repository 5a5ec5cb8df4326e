"""ClimSim's clock: steps of 20 minutes in years of 365 days, without leap years.

A date is one number, year, month and day: 10201 is 1 February of year 1. A time is a
date and the second of the day; ``stamp`` makes one number of both, in the same order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

STEP = 1200
"""Seconds between two states of the model."""
DAY = 86_400
YEAR = 365
STARTS = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
"""The day of the year on which each month begins, from 0."""
STAMP_DAY = 100_000
"""More than the seconds of a day, so that days stay apart, and easy to read."""


def days_of(date: Integers) -> Integers:
    """The number of days from the beginning of year 0 to a date.

    Example:
        >>> days_of(np.array([10301, 10228]))
        array([424, 423])
    """
    year, month, day = date // 10_000, date // 100 % 100, date % 100
    return np.asarray(YEAR * year + STARTS[month - 1] + day - 1, dtype=np.int64)


def date_of(days: Integers) -> Integers:
    """The date of a number of days after the beginning of year 0; undoes ``days_of``.

    Example:
        >>> date_of(np.array([423, 424]))
        array([10228, 10301])
    """
    year, day = np.divmod(days, YEAR)
    month = np.searchsorted(STARTS, day, side="right")
    date = 10_000 * year + 100 * month + day - STARTS[month - 1] + 1
    return np.asarray(date, dtype=np.int64)


def times_from(first: int, count: int, stride: int) -> Integers:
    """The stamps of every ``stride``-th step from the first second of a date on.

    Example:
        >>> times_from(10201, 3, 36)
        array([1020100000, 1020143200, 1020200000])
    """
    seconds = np.arange(count, dtype=np.int64) * (stride * STEP)
    begin = int(days_of(np.array(first)))
    return stamp(date_of(begin + seconds // DAY), seconds % DAY)


def stamp(date: Integers, second: Integers) -> Integers:
    """One number for a date and a second of the day; later is larger."""
    return np.asarray(date, dtype=np.int64) * STAMP_DAY + second


def date_of_stamp(time: Integers) -> Integers:
    """The date of a stamp."""
    return time // STAMP_DAY
