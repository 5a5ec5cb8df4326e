"""What a run depends on besides its settings: versions, machine, threads.

Names no host and no user, so a record can be shown to anyone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import oneproj_paper

PACKAGES = ("oneproj", "torch", "numpy", "scipy")
PROCESSORS = Path("/proc/cpuinfo")
"""Where Linux names the processor; ``platform.processor`` often does not."""


def versions() -> dict[str, str]:
    """The versions of Python and of what numbers depend on.

    Example:
        >>> list(versions())
        ['python', 'oneproj', 'torch', 'numpy', 'scipy']
    """
    return oneproj_paper.versions(*PACKAGES)


def machine() -> dict[str, Any]:
    """What seconds depend on.

    Example:
        >>> list(machine())
        ['processor', 'cores', 'system', 'threads']
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: sums then have one order, whoever else computes.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _processor() -> str:
    if PROCESSORS.is_file():
        for line in PROCESSORS.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
