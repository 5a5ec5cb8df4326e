"""Download one file with pooch: it appears under its name complete, or not at all.

Pooch writes to a temporary file in the same folder, checks its checksum and then
renames it. Lost connections, silence and HTTP 408, 429 and 5xx are tried again after a
pause; every failed attempt is a warning of the logger ``oneproj_paper.data.fetch``.
A file that is there, with the known checksum if there is one, is not fetched again.
Hugging Face sends the SHA-256 of a large file with the redirect to it; it is checked.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pooch
import requests
import urllib3

from oneproj.progress import progress_bar
from oneproj_paper.data.find import OFFLINE, is_offline
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

LOG = logging.getLogger(__name__)
RETRIES = 4
"""Attempts after the first; pooch waits 1, 2, 3, ... seconds before them."""
CONNECT_TIMEOUT = 10.0
"""Seconds until a server has to accept the connection."""
READ_TIMEOUT = 60.0
"""Seconds of silence after which a transfer counts as failed."""
LONGEST_WAIT = 300.0
"""Seconds; a server whose Retry-After asks for more is not waited for."""
CHUNK = 1 << 16
"""Bytes written at a time."""
TEMPORARY = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed."""
PERMANENT = (
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
)
"""Errors of an address that no attempt can fetch."""
HUB_CHECKSUM = "X-Linked-ETag"
"""The header in which Hugging Face sends the SHA-256 of a large file."""
SHA256 = re.compile(r'"?([0-9a-f]{64})"?')
TEMPORARY_NAME = re.compile(r"tmp[a-z0-9_]{8}")
"""The names that ``tempfile`` gives, which pooch uses."""


def fetch(
    url: str,
    path: Path,
    *,
    checksum: str | None = None,
    progress: bool | None = None,
) -> Path:
    """Download a file unless it is there; ``path`` is complete when it appears.

    The caller holds the lock of the data set, so no other process downloads into the
    same folder.

    Args:
        url: The address.
        path: Where the file goes.
        checksum: Algorithm and digest, as ``"md5:d41d8..."``; None checks nothing.
        progress: None shows a bar on a terminal. False also logs no first attempt, for
            one file of many.

    Raises:
        DataNotFoundError: The file could not be fetched, or ONEPROJ_OFFLINE is set.
        InvalidDataError: It arrived with another checksum.
    """
    if is_offline():
        message = (
            f"{url} is needed, but {OFFLINE} is set, so nothing is downloaded. "
            "Unset it and run the same command again."
        )
        raise DataNotFoundError(message)
    _remove_temporary_files(path.parent)
    files = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: checksum},
        urls={path.name: url},
        retry_if_failed=RETRIES,
    )
    pooch.get_logger().setLevel(logging.WARNING)  # attempts are logged here
    downloader, begin = _Downloader(path.name, progress=progress), time.monotonic()
    try:
        files.fetch(path.name, downloader=downloader)
    except requests.RequestException as error:
        address = url.partition("?")[0]
        message = (
            f"{address} could not be fetched: {explain(error, url)}. Tried "
            f"{downloader.attempts} times in {time.monotonic() - begin:.0f} s. Run the "
            "same command again later."
        )
        raise DataNotFoundError(message) from error
    except ValueError as error:  # a checksum that differs
        message = (
            f"{url}: {error} Run the same command again; if the error stays, the file "
            "at the source has changed."
        )
        raise InvalidDataError(message) from error
    return path


@contextmanager
def other_ways(advice: str) -> Iterator[None]:
    """Add to the error of a download how else to get the data.

    Example:
        >>> with other_ways("Try: ask a friend for it."):
        ...     raise DataNotFoundError("It could not be fetched.")
        Traceback (most recent call last):
        oneproj_paper.errors.DataNotFoundError: It could not be fetched.
        Try: ask a friend for it...
    """
    try:
        yield
    except DataNotFoundError as error:
        spare = "" if is_offline() else f" {OFFLINE}=1 refuses at once, without trying."
        message = f"{error}\n{advice}{spare}"
        raise DataNotFoundError(message) from error


def explain(error: Exception, url: str) -> str:
    """Say why a request failed, as a clause without a library's own terms.

    Example:
        >>> explain(ConnectionRefusedError(), "http://127.0.0.1/file")
        '127.0.0.1 refused the connection'
    """
    host = urlsplit(url).hostname or url
    causes = list(_causes(error))
    last = causes[-1]
    detail = getattr(last, "strerror", None) or str(last) or type(last).__name__

    if isinstance(error, requests.HTTPError) and error.response is not None:
        answer = error.response
        return f"{host} answered HTTP {answer.status_code} {answer.reason}"
    timeouts = (requests.Timeout, TimeoutError, urllib3.exceptions.TimeoutError)
    reasons: tuple[tuple[Any, str], ...] = (
        (
            requests.exceptions.ProxyError,
            f"the proxy of this machine (HTTPS_PROXY) did not reach {host}: {detail}",
        ),
        (
            requests.exceptions.SSLError,
            f"no secure connection to {host}: {detail}",
        ),
        (
            socket.gaierror,
            f"there is no address for {host}, so there may be no network here",
        ),
        (ConnectionRefusedError, f"{host} refused the connection"),
        (timeouts, f"{host} was silent for too long"),
        (Exception, f"the connection to {host} failed: {detail}"),
    )
    return next(
        reason
        for kinds, reason in reasons
        if any(isinstance(cause, kinds) for cause in causes)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it, down to the first cause."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


class _Downloader:
    """Pooch's HTTP downloader, which also logs, and stops where a retry is useless."""

    def __init__(self, name: str, *, progress: bool | None) -> None:
        self.attempts = 0
        self._name = name
        self._progress = progress
        self._sent: str | None = None

    def __call__(self, url: str, output_file: str, files: object) -> None:
        self.attempts += 1
        if self.attempts == 1 and self._progress is not False:
            LOG.info("Trying %s, attempt 1 of %d.", url, RETRIES + 1)
        try:
            with ExitStack() as stack:
                pooch.HTTPDownloader(
                    progressbar=_Bar(self._name, stack, enabled=self._progress),
                    chunk_size=CHUNK,
                    timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
                    hooks={"response": partial(self._look_at, stack)},
                )(url, output_file, files)
        except PERMANENT as error:
            message = f"{url} could not be fetched: {error}."
            raise DataNotFoundError(message) from error
        except requests.RequestException as error:
            text = "%s: %s (attempt %d of %d)."
            reason = explain(error, url)
            LOG.warning(text, self._name, reason, self.attempts, RETRIES + 1)
            if error.response is not None:
                _wait_or_stop(error.response, f"{url} could not be fetched: {reason}")
            raise
        self._check(output_file)

    def _look_at(
        self, stack: ExitStack, response: requests.Response, **_: object
    ) -> None:
        """Note the checksum that comes with an answer; pooch leaves answers open."""
        stack.callback(response.close)
        found = SHA256.fullmatch(response.headers.get(HUB_CHECKSUM, ""))
        self._sent = found[1] if found else self._sent

    def _check(self, file: str) -> None:
        if self._sent is not None and (found := pooch.file_hash(file)) != self._sent:
            message = (
                f"{self._name} arrived with SHA-256 {found}, but the server sent "
                f"{self._sent} along. Nothing was kept."
            )
            raise ValueError(message)


def _wait_or_stop(answer: requests.Response, failure: str) -> None:
    """Wait as long as the server asks; stop where another attempt is useless.

    Raises:
        DataNotFoundError: The status is permanent, or the wait too long.
    """
    if answer.status_code not in TEMPORARY:
        message = (
            f"{failure}. It may have moved: see whether the address opens in a browser."
        )
        raise DataNotFoundError(message)
    try:
        asked = answer.headers.get("Retry-After", "0")
        wait = urllib3.util.Retry().parse_retry_after(asked)
    except urllib3.exceptions.InvalidHeader:
        wait = 0.0
    if wait > LONGEST_WAIT:
        message = (
            f"{failure}, and the server asks to wait {wait:,.0f} seconds. Run the same "
            "command again later."
        )
        raise DataNotFoundError(message)
    time.sleep(wait)


class _Bar:
    """The library's progress bar with the attributes that pooch uses."""

    total = 0
    """Bytes, set by pooch before the first update; 0 if the server does not say."""

    def __init__(self, name: str, stack: ExitStack, *, enabled: bool | None) -> None:
        self._name, self._stack, self._enabled = name, stack, enabled
        self._done = 0
        self._advance_to: Callable[[int], None] | None = None

    def update(self, count: int) -> None:
        if not self.total:
            return
        if self._advance_to is None:
            bar = progress_bar(self._name, self.total, enabled=self._enabled)
            self._advance_to = self._stack.enter_context(bar)
        self._done += count
        self._advance_to(min(self._done, self.total))

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        """Do nothing: the stack closes the bar, after errors as well."""


def _remove_temporary_files(folder: Path) -> None:
    """Remove what a killed process left; the caller's lock keeps others out."""
    for file in folder.glob("tmp*"):
        if TEMPORARY_NAME.fullmatch(file.name):
            file.unlink(missing_ok=True)
