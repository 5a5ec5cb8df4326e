"""One run of one instance, and the file that keeps them."""

from __future__ import annotations

import json
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.projection import peers
from benchmarks.projection.cases import Case, Instance
from benchmarks.projection.reference import reference
from oneproj.files import write_text
from oneproj.projection.project import ProjectorLike, project
from oneproj.results import Status
from oneproj.vectors.arithmetic import distance, snapshot

PLACE = Path(__file__).parents[1] / "records" / "projection.json"
"""The record that the page in docs/ is made from."""
LATE = "out of time"
"""The error of a run of ours that took too long."""
OURS = "oneproj"
"""The label of this library's runs."""
NEAR = 1e-3
"""Relative: a distance within this of the best known counts as the nearest."""
TIGHT = 1e-6
"""Relative: what rounding may add to a lower bound, or take from the best known."""
FORGIVEN = 1e-6
"""Violation of a peer that still counts as feasible, in units of the start's where that
is above 1. This library has to reach 0."""
EXACT = 1e-9
"""Violation up to which a peer's distance may become the best known."""

Run = dict[str, Any]


class Record:
    """The best distances known, and runs by label.

    ``best`` maps an instance to its distance, who found it and SLSQP's gradients;
    ``runs`` maps a label and an instance to what ``run`` returns.

    Example:
        >>> Record(Path("nowhere.json")).runs
        {}
    """

    def __init__(self, path: Path) -> None:
        """Read what there is."""
        self.path = path
        data = json.loads(path.read_text()) if path.exists() else {}
        self.best: dict[str, Run] = data.get("best", {})
        self.runs: dict[str, dict[str, Run]] = data.get("runs", {})

    def save(self) -> None:
        """Write the file, an instance a line."""
        runs = ",\n".join(
            f"{json.dumps(label)}: {_lines(found)}"
            for label, found in sorted(self.runs.items())
        )
        text = f'{{"best": {_lines(self.best)},\n"runs": {{\n{runs}}}}}\n'
        write_text(self.path, text)

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
            if run.get("feasible") and run["worst"] <= EXACT:
                known.append(run["distance"])
        found = [d for d in known if d is not None]
        return min(found) if found else None

    def is_empty(self, key: str) -> bool:
        """Whether an instance has no feasible point."""
        return bool(self.best.get(key, {}).get("source") == "empty")


def _lines(found: dict[str, Run]) -> str:
    rows = (
        f"{json.dumps(key)}: {json.dumps(found[key], sort_keys=True)}"
        for key in sorted(found)
    )
    return "{\n" + ",\n".join(rows) + "}"


class OutOfTimeError(BaseException):
    """Ends a run that takes too long; no library catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTimeError`` in the block after so many seconds of processor time.

    Example:
        >>> with time_limit(5.0):
        ...     pass
    """

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def run(instance: Instance, projector: ProjectorLike, limit: float) -> Run:
    """Project one instance; what came of it, judged by its own constraints."""
    return _judged(instance, limit, lambda case: _project(case, projector, limit))


def run_peer(instance: Instance, name: str, limit: float) -> Run | None:
    """The same for a peer; None where it does not run."""
    if peers.why_not(name, instance.make()) is not None:
        return None
    return _judged(instance, limit, lambda case: peers.solve(name, case, limit))


def _judged(instance: Instance, limit: float, move: Callable[[Case], Run]) -> Run:
    case = instance.make()
    start, began = snapshot(case.parameters), time.process_time()
    first = _worst(case)
    try:
        found = move(case)
    except OutOfTimeError:
        return {"error": LATE, "seconds": limit, "feasible": False}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is recorded
        return {"error": f"{type(error).__name__}: {error}"[:200], "feasible": False}
    seconds = round(time.process_time() - began, 3)
    worst, moved = _worst(case), distance(case.parameters, start)
    claimed = found.pop("claimed", None)
    forgiven = FORGIVEN * max(1.0, first)
    return {
        **found,
        "feasible": worst <= forgiven if claimed is None else claimed,
        "false": bool(claimed and not worst <= 0),
        "distance": moved if math.isfinite(moved) else None,
        "worst": worst,
        "seconds": seconds,
    }


def _worst(case: Case) -> float:
    return max(c.value() for c in case.constraints.values())


def _project(case: Case, projector: ProjectorLike, limit: float) -> Run:
    with warnings.catch_warnings(), time_limit(limit):
        warnings.simplefilter("ignore")
        done = project(
            case.parameters,
            case.constraints,
            projector=projector,
            on_failure="return",
            progress=False,
        )
    return {
        "status": done.status.name,
        "claimed": done.status.ok,
        "gradients": done.gradients,
        "kkt": done.kkt_residual,
        "bound": done.lower_bound,
        "proven empty": done.status is Status.PROVEN_INFEASIBLE,
    }


def is_nearest(run: Run, best: float | None) -> bool:
    """Whether a run ended within a tenth of a percent of the best distance.

    Example:
        >>> is_nearest({"feasible": True, "distance": 1.0}, 0.9995)
        True
    """
    if not run["feasible"] or best is None:
        return False
    return bool(run["distance"] <= (1.0 + NEAR) * best + EXACT)


def is_false(run: Run, best: float | None, *, exact: bool) -> bool:
    """Whether a run claims what is not so: feasibility, emptiness or a bound.

    Args:
        run: Of this library; a peer claims nothing.
        best: The best distance known; None where no point is feasible, or none known.
        exact: Whether that distance is one that no feasible point can undercut.

    Example:
        >>> is_false({"bound": 1.1}, 1.0, exact=True)
        True
    """
    if run.get("false") or (run.get("proven empty") and best is not None):
        return True
    bound = run.get("bound")
    if bound is None or best is None or not exact or not math.isfinite(bound):
        return False
    return bool(bound > (1.0 + TIGHT) * best + TIGHT)
