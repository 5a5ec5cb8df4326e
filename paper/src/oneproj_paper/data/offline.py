"""Whether the network may be used: ONEPROJ_OFFLINE says no."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from oneproj.errors import DataNotFoundError

OFFLINE = "ONEPROJ_OFFLINE"
"""The environment variable; any value but an empty one, 0, false and no forbids it."""


def is_offline() -> bool:
    """Whether ONEPROJ_OFFLINE forbids every transfer.

    Example:
        >>> import os
        >>> before = os.environ.get(OFFLINE)
        >>> os.environ[OFFLINE] = "1"
        >>> is_offline()
        True
        >>> _ = os.environ.pop(OFFLINE)
        >>> is_offline()
        False
        >>> if before is not None:
        ...     os.environ[OFFLINE] = before
    """
    return os.environ.get(OFFLINE, "").lower() not in {"", "0", "false", "no"}


def refuse_offline(url: str) -> None:
    """Stop before a transfer that the user has forbidden.

    Raises:
        DataNotFoundError: ONEPROJ_OFFLINE is set.
    """
    if is_offline():
        message = (
            f"{url} is needed, but {OFFLINE} is set, so nothing is downloaded. "
            f"Unset it and run the same command again."
        )
        raise DataNotFoundError(message)


@contextmanager
def other_ways(advice: str) -> Iterator[None]:
    """Add to the error of a download how else the data can be had.

    Example:
        >>> with other_ways("Try: ask a friend for it."):
        ...     raise DataNotFoundError("It could not be fetched.")
        Traceback (most recent call last):
        oneproj.errors.DataNotFoundError: It could not be fetched.
        Try: ask a friend for it...
    """
    try:
        yield
    except DataNotFoundError as error:
        spare = "" if is_offline() else f" {OFFLINE}=1 refuses at once, without trying."
        message = f"{error}\n{advice}{spare}"
        raise DataNotFoundError(message) from error
