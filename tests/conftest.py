"""What all tests share: Ctrl-C, a schedule that ends soon, and saved runs."""

from __future__ import annotations

import hashlib
import io
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from oneproj.theory import ConvexConstants, Schedule, convex_schedule
from oneproj.training import loop

# A shell ignores it for what a script runs in the background, and so would Python.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow or busy machine fails no test.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def no_ctrl_c_before() -> None:
    """Two tests in a row are no Ctrl-C pressed twice."""
    loop._WARNED.set(-math.inf)


@pytest.fixture(scope="session")
def read_saved() -> Callable[[Path], dict[str, Any]]:
    """Reads a checkpoint as its format is documented: two lines, then torch.save."""

    def read(file: Path) -> dict[str, Any]:
        with file.open("rb") as stream:
            stream.readline()
            stream.readline()
            state: dict[str, Any] = torch.load(stream, weights_only=True)
        return state

    return read


@pytest.fixture(scope="session")
def rewrite_saved() -> Callable[[Path, object], None]:
    """Replaces what a checkpoint holds; format and checksum are right."""

    def rewrite(file: Path, state: object) -> None:
        first, content = file.read_bytes().partition(b"\n")[0], io.BytesIO()
        torch.save(state, content)
        digest = hashlib.sha256(content.getvalue()).hexdigest().encode()
        file.write_bytes(b"\n".join([first, digest, content.getvalue()]))

    return rewrite


@pytest.fixture(scope="session")
def short_schedule() -> Schedule:
    """A schedule for the unit ball that ends soon; its constants claim very little."""
    constants = ConvexConstants(
        weak_convexity=1e-3,
        gradient_bound=1e-2,
        constraint_gradient_bound=1.0,
        boundary_slope=1.0,
        initial_gap=1e-3,
    )
    return convex_schedule(constants, epsilon=1.0)
