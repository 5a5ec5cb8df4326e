"""What every contract asks for: nothing goes on in the background afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "oneproj-solver":
            thread.join(timeout=5)
            assert not thread.is_alive()
