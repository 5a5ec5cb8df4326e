"""What can go wrong with data files."""

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
