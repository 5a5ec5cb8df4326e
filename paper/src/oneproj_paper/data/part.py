"""What has arrived of a file so far, and the version that it is a part of."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from oneproj.errors import InvalidDataError
from oneproj_paper.data.cache import digest


class Checksum(NamedTuple):
    """A digest and how it is computed: ``Checksum("md5", "d41d8...")``."""

    algorithm: str
    value: str


class Part:
    """The file ``<name>.part``, and beside it the ETag of what it is a part of.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     part = Part(Path(folder) / "table.csv")
        ...     part.begin('"v1"')
        ...     _ = part.path.write_text("a,b")
        ...     part.range()
        {'Range': 'bytes=3-', 'If-Range': '"v1"'}
    """

    def __init__(self, path: Path) -> None:
        """Take up what an earlier run has left for this file, if anything."""
        self.name = path.name
        self.path = path.with_name(f"{path.name}.part")
        self._version = path.with_name(f"{path.name}.part.etag")
        self.complete = False

    def size(self) -> int:
        """Bytes that have arrived."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def is_resumable(self) -> bool:
        """Whether the rest of the same version can be asked for."""
        return self._version.is_file()

    def range(self) -> dict[str, str]:
        """The headers that ask for the rest; empty if all is to be sent."""
        if not (self.size() and self.is_resumable()):
            return {}
        version = self._version.read_text("utf-8")
        return {"Range": f"bytes={self.size()}-", "If-Range": version}

    def is_whole(
        self, length: int | None, version: str | None, checksum: Checksum | None
    ) -> bool:
        """Whether all of the file is here, by what the server says of it."""
        if not self.is_resumable() or length != self.size():
            return False
        same = version in {None, self._version.read_text("utf-8")}
        return same and self._has(checksum)

    def begin(self, version: str | None) -> None:
        """Forget what was there; note the version of what comes, if it is named."""
        self.drop()
        # A weak ETag does not promise the same bytes.
        if version and not version.startswith("W/"):
            self._version.write_text(version, encoding="utf-8")

    def drop(self) -> None:
        """Forget what has arrived."""
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def check(self, url: str, checksum: Checksum | None) -> None:
        """Refuse, and forget, what does not have the checksum.

        Raises:
            InvalidDataError: It has another one.
        """
        if checksum is None or self._has(checksum):
            return
        found = digest(self.path, checksum.algorithm)
        self.drop()
        message = (
            f"{url} arrived with {checksum.algorithm} {found}, expected is "
            f"{checksum.value}. Nothing was kept. Try again; if it stays so, the file "
            "at the source has changed."
        )
        raise InvalidDataError(message)

    def _has(self, checksum: Checksum | None) -> bool:
        if checksum is None:
            return True
        return digest(self.path, checksum.algorithm) == checksum.value.lower()
