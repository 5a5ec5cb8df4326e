"""One file from one address, complete or not at all.

A transfer goes to ``<name>.part``; only what has arrived whole, and has the digest
that is known, gets the final name. Passing trouble (a lost connection, silence, HTTP
429 and 5xx) is tried again, after what the server's Retry-After asks for or else
after a pause that doubles. What has arrived is kept where the server names its
version (an ETag), so that another try, or another run, continues; elsewhere it starts
again. Attempts are counted from the last one that brought something new.

Each attempt is told to the log ``oneproj_paper.data``: a failed one as a warning, which
Python shows on standard error unless the program says otherwise.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from oneproj.errors import DataNotFoundError
from oneproj.progress import progress_bar, progress_line
from oneproj_paper.data.cache import publish
from oneproj_paper.data.offline import refuse_offline
from oneproj_paper.data.part import Checksum, Part
from oneproj_paper.data.trouble import PassingTrouble, in_words

LOG = logging.getLogger(__name__)

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed."""
PARTIAL_CONTENT, RANGE_REFUSED, FIRST_ERROR = 206, 416, 400
PIECE = 1 << 16
"""Bytes at a time: what a lost connection can take with it."""
LINKED = "X-Linked-ETag"
"""Where Hugging Face gives the SHA-256 of a large file."""
SHA256 = re.compile(r'"?([0-9a-f]{64})"?')
WHOLE = re.compile(r"bytes \*/(\d+)")
"""How HTTP 416 gives the length of the file, in Content-Range."""


@dataclass(frozen=True)
class Patience:
    """How long to wait, and how often to try again.

    Example:
        >>> [Patience().pause(tries) for tries in (1, 2, 3)]
        [1.0, 2.0, 4.0]
    """

    attempts: int = 5
    """In a row, without anything new."""
    connect: float = 10.0
    """Seconds until a server has to accept the connection."""
    read: float = 60.0
    """Seconds of silence after which a transfer counts as stuck."""
    first: float = 1.0
    """Seconds before the second attempt; they double from then on."""
    longest: float = 300.0
    """Seconds; a server that asks for more is not waited for."""

    def pause(self, tries: int) -> float:
        """Seconds to wait after so many tries."""
        return float(min(self.first * 2 ** (tries - 1), self.longest))


PATIENCE = Patience()


def fetch(
    url: str,
    path: Path,
    *,
    checksum: Checksum | None = None,
    progress: bool | None = None,
) -> Path:
    """Download a file; ``path`` appears when it is complete, and not before.

    Args:
        url: Where it is.
        path: Where it goes.
        checksum: What it has to be; None takes the one the server gives, if any.
        progress: None shows a bar on a terminal; False also keeps quiet about an
            attempt until it fails, for one file of many.

    Raises:
        DataNotFoundError: It could not be had, or ONEPROJ_OFFLINE forbids it.
        InvalidDataError: It arrived with another checksum.
    """
    refuse_offline(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Part(path)
    known = _persist(url, part, checksum, progress=progress)
    part.check(url, known)
    publish(part.path, path)
    part.drop()
    return path


def _persist(
    url: str, part: Part, checksum: Checksum | None, *, progress: bool | None
) -> Checksum | None:
    """Try until all has arrived, or too often in a row nothing more did."""
    tries, begin = 0, time.monotonic()
    quiet = logging.DEBUG if progress is False else logging.INFO
    LOG.log(quiet, "Trying %s, attempt 1 of %d.", url, PATIENCE.attempts)
    while True:
        tries, before = tries + 1, part.size()
        try:
            return _transfer(url, part, checksum, progress=progress)
        except PassingTrouble as trouble:
            # Gigabytes may lose the connection often; what counts is that they come.
            tries = 1 if part.is_resumable() and part.size() > before else tries
            wait = PATIENCE.pause(tries) if trouble.wait is None else trouble.wait
            if tries == PATIENCE.attempts or wait > PATIENCE.longest:
                spent = time.monotonic() - begin
                tried = f"Tried {_times(tries)} in {spent:.0f} s"
                raise _gave_up(url, part, trouble, tried, wait) from trouble
            LOG.warning(
                "%s: %s. Trying again in %.0f s, attempt %d of %d.",
                *(part.name, trouble, wait, tries + 1, PATIENCE.attempts),
            )
            time.sleep(wait)
        finally:
            if not (part.complete or part.is_resumable()):
                part.drop()


def _transfer(
    url: str, part: Part, checksum: Checksum | None, *, progress: bool | None
) -> Checksum | None:
    """One attempt; returns the checksum to expect, if it is given or sent along."""
    # Compressed on the way, a file would not have the length that is announced.
    own = {"Accept-Encoding": "identity", "User-Agent": "oneproj"}
    headers = {**own, **part.range()}
    timeout = (PATIENCE.connect, PATIENCE.read)
    passing = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    )
    try:
        with requests.get(
            url, headers=headers, stream=True, timeout=timeout
        ) as response:
            known = checksum or _announced(response)
            if response.status_code == RANGE_REFUSED:
                _take_whole(response, part, known)
            else:
                _check_status(url, response)
                _receive(response, part, progress=progress)
            return known
    except passing as error:
        reason = in_words(error, urlsplit(url).hostname or url)
        raise PassingTrouble(reason) from error
    except requests.RequestException as error:
        message = f"{url} could not be fetched: {error}."
        raise DataNotFoundError(message) from error


def _take_whole(response: Any, part: Part, checksum: Checksum | None) -> None:  # noqa: ANN401
    """There is no rest to send: all of it has arrived before, or it is of no use.

    A run that was killed between the last byte and the final name leaves a whole part.
    """
    found = WHOLE.fullmatch(response.headers.get("Content-Range", ""))
    length = int(found[1]) if found else None
    if part.is_whole(length, response.headers.get("ETag"), checksum):
        part.complete = True
        return
    size = part.size()
    part.drop()
    reason = (
        f"the {size:,} bytes that arrived before are no part of the file as it is now "
        "(HTTP 416), so it starts again from the beginning"
    )
    raise PassingTrouble(reason, wait=0.0)


def _check_status(url: str, response: Any) -> None:  # noqa: ANN401 - of requests
    status: int = response.status_code
    if status in PASSING:
        reason = f"{urlsplit(url).hostname} answered HTTP {status} {response.reason}"
        raise PassingTrouble(reason, wait=_retry_after(response))
    if status >= FIRST_ERROR:
        message = (
            f"{url} answered HTTP {status} {response.reason}. It may have moved: see "
            "whether the address opens in a browser."
        )
        raise DataNotFoundError(message)


def _retry_after(response: Any) -> float | None:  # noqa: ANN401 - of requests
    """Seconds that the server asks to wait: as a number or as a date."""
    text = response.headers.get("Retry-After")
    if text is None:
        return None
    try:
        return float(urllib3.util.Retry().parse_retry_after(text))
    except urllib3.exceptions.InvalidHeader:
        return None


def _receive(response: Any, part: Part, *, progress: bool | None) -> None:  # noqa: ANN401
    resumed = response.status_code == PARTIAL_CONTENT
    if not resumed:
        part.begin(response.headers.get("ETag"))
    arrived = part.size() if resumed else 0
    length = response.headers.get("Content-Length")
    total = None if length is None else arrived + int(length)
    with (
        _progress(part.name, total, enabled=progress) as show,
        part.path.open("ab") as file,
    ):
        for chunk in response.iter_content(PIECE):
            file.write(chunk)
            arrived += len(chunk)
            show(arrived)
    if total is not None and arrived != total:
        reason = f"{arrived:,} of {total:,} bytes arrived"
        raise PassingTrouble(reason)
    part.complete = True


@contextmanager
def _progress(
    label: str, total: int | None, *, enabled: bool | None
) -> Iterator[Callable[[int], None]]:
    if total is not None:
        with progress_bar(label, total, enabled=enabled) as show:
            yield show
    else:
        with progress_line(label, enabled=enabled) as say:
            yield lambda arrived: say(f"{arrived / 1e6:.1f} MB")


def _announced(response: Any) -> Checksum | None:  # noqa: ANN401 - of requests
    """The SHA-256 that Hugging Face sends, with the redirect to the content."""
    for answer in (*response.history, response):
        found = SHA256.fullmatch(answer.headers.get(LINKED, ""))
        if found:
            return Checksum("sha256", found[1])
    return None


def _gave_up(
    url: str, part: Part, trouble: PassingTrouble, tried: str, wait: float
) -> DataNotFoundError:
    """What is wrong, what was tried, and what is left of it."""
    reason = f"{trouble}. {tried}"
    if wait > PATIENCE.longest:
        reason = f"{trouble}, and the server asks to wait {wait:,.0f} seconds"
    kept = ""
    if part.is_resumable() and part.size():
        kept = f": the {part.size() / 1e6:.1f} MB that have arrived are kept"
    address = url.partition("?")[0]  # what is asked for there is not the trouble
    return DataNotFoundError(
        f"{address} could not be fetched: {reason}. Run the same command again "
        f"later{kept}."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
