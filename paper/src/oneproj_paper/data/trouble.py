"""What can go wrong on the way to a server, in words."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import requests
import urllib3


class PassingTrouble(Exception):  # noqa: N818 - no failure: it is tried again
    """Something that may be over at the next attempt."""

    def __init__(self, reason: str, *, wait: float | None = None) -> None:
        """Say what it is, and how many seconds to wait if that is known."""
        super().__init__(reason)
        self.wait = wait


def in_words(error: Exception, host: str) -> str:
    """Why a request failed, as a clause; libraries tell it in their own terms.

    Example:
        >>> in_words(ConnectionRefusedError(), "127.0.0.1")
        '127.0.0.1 refused the connection'
    """
    causes = list(_causes(error))
    last = _text(causes[-1])

    def is_any(*kinds: type[Exception]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if is_any(requests.exceptions.ProxyError):
        return f"the proxy of this machine (HTTPS_PROXY) did not reach {host}: {last}"
    if is_any(requests.exceptions.SSLError):
        return f"no secure connection to {host}: {last}"
    if is_any(socket.gaierror):
        return (
            f"the name {host} could not be looked up, so there may be no network here"
        )
    if is_any(ConnectionRefusedError):
        return f"{host} refused the connection"
    if is_any(requests.Timeout, TimeoutError, urllib3.exceptions.TimeoutError):
        return f"{host} was silent for too long"
    return f"the connection to {host} failed: {last}"


def _text(error: BaseException) -> str:
    """What an error says, without the number that an operating system gives it."""
    plain = error.strerror if isinstance(error, OSError) else None
    return plain or str(error) or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it, down to the first cause."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
