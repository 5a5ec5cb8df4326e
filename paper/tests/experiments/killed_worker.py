"""``oneproj-paper reproduce`` with short runs, to be killed; see test_killed.py."""

from __future__ import annotations

import sys

from oneproj_paper.cli import app
from oneproj_paper.experiments import specs

if __name__ == "__main__":
    updates, seeds, out = sys.argv[1:]
    specs.SHIPPED = None  # calibrations have numbers of updates of their own
    specs.STEPS = int(updates)  # a run carries its number of updates to the workers
    options = ["--preset", "oneproj", "--method", "one-projection", "--jobs", "2"]
    options += ["--seeds", seeds, "--out", out]
    app(["reproduce", "abstention-gaussian", *options])
