"""Errors of the paper's package: about data files, records and thresholds."""

from __future__ import annotations

from oneproj.errors import OneprojError


class DataNotFoundError(OneprojError, FileNotFoundError):
    """A data file is in none of the places where it is looked for.

    Example:
        >>> issubclass(DataNotFoundError, FileNotFoundError)
        True
    """


class InvalidDataError(OneprojError, ValueError):
    """A data file was found, but it does not hold what it should.

    Example:
        >>> issubclass(InvalidDataError, ValueError)
        True
    """


class RecordError(OneprojError, RuntimeError):
    """A record of an experiment is damaged, or does not belong with the others.

    Example:
        >>> issubclass(RecordError, OneprojError)
        True
    """


class DamagedRecordError(RecordError):
    """A file in the place of a record does not hold it, or not all of it.

    Example:
        >>> issubclass(DamagedRecordError, RecordError)
        True
    """


class CalibrationError(OneprojError, RuntimeError):
    """No thresholds keep the class errors, or a file of thresholds is of no use.

    Example:
        >>> issubclass(CalibrationError, OneprojError)
        True
    """
