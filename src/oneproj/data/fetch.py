"""One file from one address, complete or not at all.

A transfer goes to ``<name>.part``; only what has arrived whole, and has the digest
that is known, gets the final name. Passing trouble (a lost connection, silence, HTTP
429 and 5xx) is tried again, after what the server's Retry-After asks for or else
after a pause that doubles. What has arrived is kept where the server names its
version (an ETag), so that another try, or another run, continues; elsewhere it starts
again. Attempts are counted from the last one that brought something new.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oneproj.data.cache import digest, publish
from oneproj.data.extras import require
from oneproj.data.offline import refuse_offline
from oneproj.errors import DataNotFoundError, InvalidDataError
from oneproj.progress import progress_bar, progress_line

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed."""
PARTIAL_CONTENT, RANGE_REFUSED, FIRST_ERROR = 206, 416, 400
PIECE = 1 << 16
"""Bytes at a time: what a lost connection can take with it."""
LINKED = "X-Linked-ETag"
"""Where Hugging Face gives the SHA-256 of a large file."""
SHA256 = re.compile(r'"?([0-9a-f]{64})"?')


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


class Checksum(NamedTuple):
    """A digest and how it is computed: ``Checksum("md5", "d41d8...")``."""

    algorithm: str
    value: str


class _PassingTrouble(Exception):  # noqa: N818 - no failure: it is tried again
    """Something that may be over at the next attempt."""

    def __init__(self, reason: str, *, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


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
        progress: None shows a bar on a terminal.

    Raises:
        DataNotFoundError: It could not be had, or ONEPROJ_OFFLINE forbids it.
        InvalidDataError: It arrived with another checksum.
    """
    refuse_offline(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(path)
    announced = _persist(url, part, progress=progress)
    part.check(url, checksum or announced)
    publish(part.path, path)
    part.drop()
    return path


def _persist(url: str, part: _Part, *, progress: bool | None) -> Checksum | None:
    """Try until all has arrived, or too often in a row nothing more did."""
    tries = 0
    while True:
        tries, before = tries + 1, part.size()
        try:
            return _transfer(url, part, progress=progress)
        except _PassingTrouble as trouble:
            # Gigabytes may lose the connection often; what counts is that they come.
            tries = 1 if part.is_resumable() and part.size() > before else tries
            wait = PATIENCE.pause(tries) if trouble.wait is None else trouble.wait
            if tries == PATIENCE.attempts or wait > PATIENCE.longest:
                raise _gave_up(url, tries, wait, trouble) from trouble
            time.sleep(wait)
        finally:
            if not (part.complete or part.is_resumable()):
                part.drop()


class _Part:
    """What has arrived of a file so far, and the version that it is a part of."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.part")
        self._version = path.with_name(f"{path.name}.part.etag")
        self.complete = False

    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def is_resumable(self) -> bool:
        return self._version.is_file()

    def range(self) -> dict[str, str]:
        """The headers that ask for the rest; empty if all is to be sent."""
        if not (self.size() and self.is_resumable()):
            return {}
        version = self._version.read_text("utf-8")
        return {"Range": f"bytes={self.size()}-", "If-Range": version}

    def begin(self, version: str | None) -> None:
        """Forget what was there; note the version of what comes, if it is named."""
        self.drop()
        # A weak ETag does not promise the same bytes.
        if version and not version.startswith("W/"):
            self._version.write_text(version, encoding="utf-8")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def check(self, url: str, checksum: Checksum | None) -> None:
        """Refuse, and forget, what does not have the checksum."""
        if checksum is None:
            return
        found = digest(self.path, checksum.algorithm)
        if found != checksum.value.lower():
            self.drop()
            message = (
                f"{url} arrived with {checksum.algorithm} {found}, expected is "
                f"{checksum.value}. Nothing was kept. Try again; if it stays so, the "
                "file at the source has changed."
            )
            raise InvalidDataError(message)


def _transfer(url: str, part: _Part, *, progress: bool | None) -> Checksum | None:
    """One attempt; returns the checksum that the server gives, if it does."""
    requests = require("requests")
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
            _check_status(url, response, part)
            _receive(response, part, progress=progress)
            return _announced(response)
    except passing as error:
        raise _PassingTrouble(str(error) or type(error).__name__) from error
    except requests.RequestException as error:
        message = f"{url} could not be fetched: {error}."
        raise DataNotFoundError(message) from error


def _check_status(url: str, response: Any, part: _Part) -> None:  # noqa: ANN401
    status: int = response.status_code
    if status == RANGE_REFUSED:
        part.drop()
        reason = "the server does not have the rest of what arrived before"
        raise _PassingTrouble(reason, wait=0.0)
    if status in PASSING:
        reason = f"HTTP {status} {response.reason}"
        raise _PassingTrouble(reason, wait=_retry_after(response))
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
    urllib3 = require("urllib3")
    try:
        return float(urllib3.util.Retry().parse_retry_after(text))
    except urllib3.exceptions.InvalidHeader:
        return None


def _receive(response: Any, part: _Part, *, progress: bool | None) -> None:  # noqa: ANN401
    resumed = response.status_code == PARTIAL_CONTENT
    if not resumed:
        part.begin(response.headers.get("ETag"))
    arrived = part.size() if resumed else 0
    length = response.headers.get("Content-Length")
    total = None if length is None else arrived + int(length)
    label = part.path.name.removesuffix(".part")
    with (
        _progress(label, total, enabled=progress) as show,
        part.path.open("ab") as file,
    ):
        for chunk in response.iter_content(PIECE):
            file.write(chunk)
            arrived += len(chunk)
            show(arrived)
    if total is not None and arrived != total:
        reason = f"{arrived:,} of {total:,} bytes arrived"
        raise _PassingTrouble(reason)
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
    url: str, tries: int, wait: float, trouble: Exception
) -> DataNotFoundError:
    if wait > PATIENCE.longest:
        reason = f"{trouble}, and the server asks to wait {wait:,.0f} seconds"
    else:
        reason = f"{trouble}, {tries} times"
    return DataNotFoundError(
        f"{url} could not be fetched: {reason}. Try the same command again later."
    )
