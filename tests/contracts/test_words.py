"""What strangers try is refused in words, not by an error from deep inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oneproj
from oneproj import InvalidProblemError, OneProjection, sets
from oneproj.logs import CsvLog

W = torch.tensor([0.3, 0.2], requires_grad=True)
X = torch.arange(6.0).reshape(3, 2)
SIZE = oneproj.function(W.norm)
MASKED = np.ma.masked_array(X.numpy(), mask=X.numpy() > 4)


def problem(**arguments: object) -> oneproj.Problem:
    with torch.no_grad():
        W.copy_(torch.tensor([0.3, 0.2]))
    given: dict[str, Any] = {"parameters": W, "objective": SIZE} | arguments
    given.setdefault("constraints", {"size": SIZE <= 1.0})
    return oneproj.Problem(**given)


def mean(data: Any, **arguments: Any) -> object:  # noqa: ANN401 - what is refused
    return oneproj.mean(lambda batch: batch @ W, data, **arguments)


def solve(**arguments: object) -> oneproj.Solution:
    given: dict[str, Any] = {"steps": 4} | arguments
    return oneproj.solve(problem(), **given)


def optimizer(**arguments: object) -> OneProjection:
    given: dict[str, Any] = {
        "lr": 0.1,
        "prox_weight": 0.2,
        "inner_steps": 2,
    } | arguments
    return OneProjection([W], **given)


def lazy() -> list[torch.Tensor]:
    return list(torch.nn.LazyLinear(1).parameters())


def meta() -> list[torch.Tensor]:
    return list(torch.nn.Linear(2, 1, device="meta").parameters())


EXPANDED = torch.zeros(1).expand(3).requires_grad_()

REFUSED: list[tuple[str, Callable[[], object], str]] = [
    # parameters and centres
    ("no parameters", lambda: problem(parameters=None), "got NoneType.*Pass model"),
    ("a number", lambda: problem(parameters=3), "tensors, but got int"),
    ("a problem", lambda: problem(parameters=problem()), "tensors, but got Problem"),
    (
        "project a problem",
        lambda: oneproj.project(problem(), {}),
        r"project\(problem.parameters, problem.constraints\)",
    ),
    ("a dict", lambda: problem(parameters={"w": W}), r"its values\(\)"),
    ("meta parameters", lambda: problem(parameters=meta()), "on the meta device"),
    ("lazy parameters", lambda: problem(parameters=lazy()), "Call the model once"),
    (
        "lazy to optimise",
        lambda: OneProjection(lazy(), 0.1, prox_weight=0.2, inner_steps=2),
        "Call the model once",
    ),
    ("expanded", lambda: problem(parameters=EXPANDED), r"expanded.*its clone\(\)"),
    ("center word", lambda: problem(center="abc"), "one tensor per trainable"),
    ("center number", lambda: problem(center=3), r"parameters \[\(2,\)\].*but got 3"),
    ("center numbers", lambda: problem(center=[1, 2]), r"but got \[\(\), \(\)\]"),
    ("center dict", lambda: problem(center={"a": W}), "one tensor per trainable"),
    ("center of words", lambda: problem(center=["a"]), "center must be made of real"),
    ("center of a ball", lambda: optimizer(center=3), "one tensor per trainable"),
    ("center with NaN", lambda: optimizer(center=[[math.nan, 0.0]]), "NaN or inf"),
    # numbers
    ("radius True", lambda: problem(radius=True), "one number > 0, got True. It bo"),
    (
        "strength True",
        lambda: oneproj.Hinge(strength=True),
        "one finite number > 0, got True",
    ),
    ("strengths", lambda: solve(strength={"size": 3}), r"one positive number or \"au"),
    ("steps True", lambda: solve(steps=True), "steps must be a whole number.*True"),
    ("seed True", lambda: solve(seed=True), "whole number >= 0, got True. A run rep"),
    ("clip", lambda: solve(clip="a"), "clip must be one number > 0, got 'a'. It is"),
    ("seconds", lambda: solve(seconds="60"), "seconds must be one number > 0.*'60'"),
    ("lr below 0", lambda: solve(lr=-1), "one finite number >= 0, got -1. It is the"),
    ("lr of 0", lambda: solve(lr=0), r"lr=0 trains nothing.*oneproj.project"),
    ("lr 0 of a rival", lambda: solve(method="penalty-sgd", lr=0.0), "trains nothing"),
    ("pull", lambda: optimizer(prox_weight=-1), ">= 0, got -1. It is the pull"),
    ("ball", lambda: optimizer(radius=0), "> 0, got 0. It bounds every iterate"),
    ("late", lambda: optimizer(late_weight=-1), ">= 0, got -1. The mean of line 14"),
    ("inner", lambda: optimizer(inner_steps=0), ">= 1, got 0. It is K, the updates"),
    ("outer", lambda: optimizer(outer_steps=-1), "outer_steps must be a whole.*-1"),
    ("tolerance", lambda: solve(method="slsqp", tolerance="a"), "one finite number"),
    (
        "switch",
        lambda: solve(method="switching-subgradient", tolerance="a"),
        "one finite number >= 0, got 'a'. Below 0",
    ),
    ("bound True", lambda: SIZE <= True, "a finite number or another term, got True"),
    (
        "bound of a set",
        lambda: sets.Ball(1.0).on(W) <= 1,
        r"compared with 1: it says already.*in Ball\(radius=1\)",
    ),
    ("two bounds", lambda: (SIZE <= 1.0) >= 0.0, "0.0: it says already.*parameters <="),
    ("bound on the left", lambda: 3 > (SIZE <= 1.0), "with 3: it says already"),
    # names
    ("method", lambda: solve(method=["a"]), r"no method \['a'\]. Known: one-proj"),
    ("projector", lambda: solve(projector=["cuts"]), "no projector.*nearest feasible"),
    ("oracle", lambda: solve(oracle=["x"]), "no oracle.*how updates see the constr"),
    ("base", lambda: solve(base=["x"]), "no base step"),
    ("base name", lambda: optimizer(base="adam"), "got 'adam'. Pass torch.optim.Adam"),
    (
        "tensors compared",
        lambda: problem(constraints={"size": W.norm() <= 1.0}),
        r"a tensor: a value, or a comparison.*oneproj.function\(lambda",
    ),
    ("failure", lambda: solve(on_failure=["x"]), "InfeasibleError.*goes unnoticed"),
    ("outer name", lambda: problem(constraints={"outer": SIZE <= 1.0}), "column of"),
    ("two lines", lambda: problem(constraints={"a\nb": SIZE <= 1.0}), "of one line"),
    # files
    (
        "checkpoint",
        lambda: solve(checkpoint=5),
        "must be a path, a oneproj.Checkpoint or None, got 5",
    ),
    ("resume", lambda: solve(resume=5), "resume must be a path, True or None, got 5"),
    ("every word", lambda: CsvLog("x.csv", every="a"), "whole number >= 1, got 'a'"),
    ("every half", lambda: CsvLog("x.csv", every=2.5), "whole number >= 1, got 2.5"),
    ("a log's path", lambda: CsvLog(5), "path must be a path, got 5"),
    ("a log's folder", lambda: CsvLog(Path(__file__).parent), "is a folder.*run.csv"),
    # generators, constants and schedules
    ("generator", lambda: optimizer(generator=3), "a torch.Generator or None, got 3"),
    ("of certify", lambda: oneproj.certify(problem(), generator=3), "slope check"),
    ("constants", lambda: oneproj.certify(problem(), constants=3), "which theorem's"),
    ("schedule", lambda: oneproj.certify(problem(), schedule=3), "made by oneproj.th"),
    ("to certify", lambda: oneproj.certify(problem(), projector="x"), "no projector"),
    (
        "projector without constants",
        lambda: oneproj.certify(problem(), projector="cuts"),
        "gradient mapping.*it is None. Leave it out",
    ),
    (
        "generator without constants",
        lambda: oneproj.certify(problem(), generator=torch.Generator()),
        "slope check.*it is None. Leave it out",
    ),
    # data
    ("sparse data", lambda: mean(X.to_sparse()), "without a plain layout.*to_dense"),
    ("meta data", lambda: mean(X.to("meta")), "A data tensor is on the meta device"),
    ("masked data", lambda: mean(MASKED), r"1 of whose entries are masked.*filled"),
    ("complex weights", lambda: mean(X, weights=torch.ones(3) * 1j), "complex number"),
    ("weights of 0", lambda: mean(X, weights=[0, 0, 0]), "not all 0, .* 3 zeros"),
    ("chunks", lambda: mean(X, chunk_size=True), "whole number >= 1, got True"),
    # sets
    ("Ball a", lambda: sets.Ball("a"), "radius of a ball must be one finite.*'a'. A"),
    ("Ball at a", lambda: sets.Ball(1.0, "a"), "center of a ball must be made of re"),
    ("Ball True", lambda: sets.Ball(radius=True), "> 0, got True"),
    ("Box a", lambda: sets.Box("a"), "lower bound of a box must be made of real"),
    ("Simplex a", lambda: sets.Simplex("a"), "total of a simplex must be one finite"),
    ("thin", lambda: sets.Simplex(tolerance="a"), "> 0 and < 1, got 'a'"),
    ("Halfspace a", lambda: sets.Halfspace("a", 1.0), "normal of a halfspace must be"),
    ("offset a", lambda: sets.Halfspace([1.0], "a"), "offset 'a'"),
    ("Affine a", lambda: sets.Affine("a", [1.0]), "matrix of an affine set must be"),
    ("Rank True", lambda: sets.Rank(rank=True), "whole number >= 1, got True"),
]


@pytest.mark.parametrize(
    ("call", "match"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_it_is_refused_in_words(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        call()


def test_lists_and_arrays_are_tensors_to_a_set() -> None:
    x = torch.tensor([3.0, 4.0])
    ball = sets.Ball(1.0, center=[3.0, 2.0])
    assert ball.project(x).tolist() == [3.0, 3.0]
    half = sets.Halfspace([2, 0], 2)
    assert half.project(x).tolist() == [1.0, 4.0]
    plane = sets.Affine([[3.0, 4.0]], np.array([10.0]))
    assert plane.project(torch.tensor([5.0, 5.0])).tolist() == [2.0, 1.0]
    box = sets.Box(np.array([0.0, 5.0])[::-1], [5, 5])
    assert box.project(x).tolist() == [5.0, 4.0]


def test_a_set_does_not_follow_what_it_was_made_of() -> None:
    center = np.zeros(2)
    ball = sets.Ball(1.0, center)
    center[:] = 9.0
    assert ball.project(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([0.6, 0.8])


def test_a_center_may_be_an_array_or_an_iterator() -> None:
    for center in (np.ones(2), iter([torch.ones(2)]), [[1.0, 1.0]]):
        built = problem(center=center, radius=9.0)
        assert built.center is not None
        assert built.center[0].tolist() == [1.0, 1.0]


def test_certify_takes_a_projector_by_name() -> None:
    claims = oneproj.theory.ConvexConstants(
        weak_convexity=1.0,
        gradient_bound=7.0,
        constraint_gradient_bound=4.0,
        boundary_slope=2.0,
        radius=2.0,
    )
    ball = {"size": sets.Ball(1.0).on(W)}
    squared = oneproj.function(lambda: W.square().sum())
    judged = problem(objective=squared, constraints=ball, radius=2.0)
    found = oneproj.certify(judged, constants=claims, projector="closed-form")
    assert "gradient mapping" in [measure.name for measure in found.measures]


def test_lr_may_be_left_to_a_scheduler_of_ones_own() -> None:
    def decay(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.1, total_steps=5, cycle_momentum=False
        )

    assert solve(lr=0.0, decay=decay).feasible
