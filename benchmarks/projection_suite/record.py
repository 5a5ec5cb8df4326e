"""One run of one instance, and the file that keeps them."""

from __future__ import annotations

import json
import math
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.projection_suite.cases import Case, Instance
from benchmarks.projection_suite.reference import reference
from oneproj.projection.project import ProjectorLike, project
from oneproj.results import Status
from oneproj.vectors.arithmetic import distance, snapshot

NEAR = 1e-3
"""Relative: a distance within this of the best known counts as the nearest."""
TIGHT = 1e-6
"""Relative: what rounding may add to a lower bound, or take from the best known."""


class Record:
    """The best distances known, and runs by label; saved after every run.

    Example:
        >>> Record(Path("nowhere.json")).runs
        {}
    """

    def __init__(self, path: Path) -> None:
        """Read what there is."""
        self.path = path
        data = json.loads(path.read_text()) if path.exists() else {}
        self.best: dict[str, dict[str, Any]] = data.get("best", {})
        self.runs: dict[str, dict[str, dict[str, Any]]] = data.get("runs", {})

    def save(self) -> None:
        """Write the file."""
        data = {"best": self.best, "runs": self.runs}
        self.path.write_text(json.dumps(data, indent=0, sort_keys=True) + "\n")

    def refer(self, instance: Instance) -> None:
        """Find the best distance of an instance, unless it is known."""
        if instance.key in self.best:
            return
        value, source, gradients = reference(instance.make())
        self.best[instance.key] = {
            "distance": value,
            "source": source,
            "gradients": gradients,
        }

    def nearest(self, key: str) -> float | None:
        """The best distance known; that of any feasible run counts."""
        known = [self.best[key]["distance"]] if key in self.best else []
        for runs in self.runs.values():
            run = runs.get(key, {})
            if run.get("feasible"):
                known.append(run["distance"])
        found = [d for d in known if d is not None]
        return min(found) if found else None


class OutOfTimeError(BaseException):
    """Ends a run that takes too long; no library catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTimeError`` in the block after so many seconds.

    Example:
        >>> with time_limit(5.0):
        ...     pass
    """

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def run(instance: Instance, projector: ProjectorLike, limit: float) -> dict[str, Any]:
    """Project one instance and say what came of it, judged by its own constraints."""
    case = instance.make()
    start, began = snapshot(case.parameters), time.perf_counter()
    try:
        with warnings.catch_warnings(), time_limit(limit):
            warnings.simplefilter("ignore")
            done = project(
                case.parameters,
                case.constraints,
                projector=projector,
                on_failure="return",
                progress=False,
            )
    except OutOfTimeError:
        return {"error": "out of time", "seconds": limit, "feasible": False}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is recorded
        return {"error": f"{type(error).__name__}: {error}"[:200], "feasible": False}
    return {
        "status": done.status.name,
        "feasible": done.status.ok,
        "false": _false_claim(case, ok=done.status.ok),
        "distance": distance(case.parameters, start),
        "worst": max(done.residuals.values()),
        "gradients": done.gradients,
        "kkt": done.kkt_residual,
        "bound": done.lower_bound,
        "proven empty": done.status is Status.PROVEN_INFEASIBLE,
        "seconds": round(time.perf_counter() - began, 3),
    }


def _false_claim(case: Case, *, ok: bool) -> bool:
    """Whether feasibility is claimed of a point that is not feasible."""
    return ok and any(not c.value() <= 0 for c in case.constraints.values())


def is_nearest(run: dict[str, Any], best: float | None) -> bool:
    """Whether a run ended within a tenth of a percent of the best distance.

    Example:
        >>> is_nearest({"feasible": True, "distance": 1.0}, 0.9995)
        True
    """
    if not run["feasible"] or best is None:
        return False
    return bool(run["distance"] <= (1.0 + NEAR) * best + 1e-9)


def is_false(run: dict[str, Any], best: float | None, *, exact: bool) -> bool:
    """Whether a run claims what is not so: feasibility, emptiness or a bound."""
    if run.get("false") or (run.get("proven empty") and best is not None):
        return True
    bound = run.get("bound")
    if bound is None or best is None or not exact or not math.isfinite(bound):
        return False
    return bool(bound > (1.0 + TIGHT) * best + TIGHT)
