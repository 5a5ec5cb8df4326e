"""What every benchmark program shares: exits in words, and the record's file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oneproj.files import check_place, write_text
from oneproj_paper.cli.exits import exits


@contextmanager
def exits_and_place(out: Path | None) -> Iterator[None]:
    """Fail in words, and before the work where the record could not be written."""
    with exits(stopped="Stopped. Nothing was written."):
        if out is not None:
            check_place(out)
        yield


def write_record(record: dict[str, Any], out: Path | None) -> None:
    """Write the record as JSON. It was printed before, so a full disk loses nothing."""
    if out is not None:
        write_text(out, json.dumps(record, indent=2) + "\n")
