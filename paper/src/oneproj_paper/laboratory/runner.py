"""Run the rows: groups of trials on all cores, with checkpoints and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np

from oneproj_paper.laboratory import checkpoints
from oneproj_paper.laboratory.checkpoints import Trajectory
from oneproj_paper.laboratory.kernel import compile_inner_run
from oneproj_paper.laboratory.plans import Plan
from oneproj_paper.laboratory.twin import Twin, trial_words

SAVE_EVERY = 5.0
"""Seconds between checkpoints: what a crash can cost."""

Report = Callable[[str, int], None]
"""Called with a row's key and the outer iterations just made, times trials."""


def run_plans(
    plans: Sequence[Plan],
    *,
    folder: Path,
    jobs: int,
    report: Report = lambda _key, _steps: None,
) -> dict[str, list[Trajectory]]:
    """Run every group of every plan and return the trajectories by row.

    Groups run on threads, since the compiled loop releases the interpreter lock; the
    longest start first. What the folder already holds is not run again.

    Raises:
        KeyboardInterrupt: Ctrl-C. Every group is saved; the same call continues.
    """
    tasks = [(plan, group) for plan in plans for group in plan.groups]
    tasks.sort(key=lambda task: -task[0].schedule.gradient_calls)
    stop = Event()
    futures: dict[tuple[str, int], Future[Trajectory]] = {}
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            for plan, group in tasks:
                # Compiled here: numba's compiler is not for several threads at once.
                compile_inner_run(plan.problem.set.shape, plan.schedule.penalty)
                futures[plan.problem.key, group.start] = pool.submit(
                    run_group, plan, group, folder=folder, report=report, stop=stop
                )
            done = {key: future.result() for key, future in futures.items()}
        except BaseException:
            stop.set()
            raise
    return {
        plan.problem.key: [done[plan.problem.key, g.start] for g in plan.groups]
        for plan in plans
    }


def run_group(
    plan: Plan,
    group: range,
    *,
    folder: Path,
    report: Report = lambda _key, _steps: None,
    stop: Event | None = None,
) -> Trajectory:
    """Run the trials of one group to the end, or until ``stop`` is set."""
    file = folder / f"{plan.problem.key}-{group.start}-{plan.digest}.npz"
    T, n, key = plan.schedule.outer_steps, len(group), plan.problem.key
    trajectory = checkpoints.load(file, outer_steps=T, trials=n) or _begin(plan, group)
    report(key, trajectory.done * n)
    x, words = trajectory.path[trajectory.done], trajectory.words
    twin = Twin(plan.problem, plan.schedule, x, words)
    saved = time.perf_counter()
    while not trajectory.complete and not (stop is not None and stop.is_set()):
        began = time.perf_counter()
        trajectory.path[trajectory.done + 1] = twin.advance()
        trajectory.words = twin.words
        trajectory.done += 1
        now = time.perf_counter()
        trajectory.seconds += now - began
        report(key, n)
        if now - saved > SAVE_EVERY:
            checkpoints.save(trajectory, file)
            saved = now
    checkpoints.save(trajectory, file)
    return trajectory


def _begin(plan: Plan, group: range) -> Trajectory:
    path = np.full((plan.schedule.outer_steps + 1, len(group), 2), np.nan)
    path[0] = plan.problem.start_point
    words = trial_words(plan.seed, plan.problem.key, len(group), group.start)
    return Trajectory(path=path, words=words)
