"""Whole checkpoints with wrong contents: refused in words, before anything is built.

Every file here has the right checksum: whoever changes the contents can compute it.
"""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES

pytestmark = [
    # A run that was led astray may warn of its answer.
    pytest.mark.filterwarnings("ignore::oneproj.errors.OneprojWarning"),
]

Rewrite = Callable[[Path, object], None]
RESUMABLE = [name for name in METHODS if name not in ("slsqp", "auto")]
STEPS, SAVED = 12, 6


def problem() -> oneproj.Problem:
    """Logistic regression with a cap on the risk over other data, and batch norm."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(30, 3, generator=generator)
    y = 2.0 * torch.randint(2, (30,), generator=generator) - 1.0
    source = torch.randn(30, 3, generator=generator) + 0.5 * y[:, None]
    w = torch.full((3,), 0.3, requires_grad=True)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    return oneproj.Problem(
        w,
        objective=oneproj.mean(loss, data=(x, y)),
        constraints={
            "risk": oneproj.mean(loss, data=(source, y), curvature="convex") <= 0.6
        },
        radius=10.0,
    )


def solve(file: Path, **arguments: Any) -> oneproj.Solution:  # noqa: ANN401 - of solve
    settings = {"steps": STEPS, "batch_size": 8, "on_failure": "return"} | arguments
    return oneproj.solve(problem(), checkpoint=oneproj.Checkpoint(file), **settings)


def save(file: Path, *, until: int = SAVED, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - of solve
    """A checkpoint after some updates, and what it holds."""
    settings = {"steps": STEPS, "batch_size": 8} | arguments

    def stop(update: oneproj.Update) -> bool:
        if until == 0:
            raise Stopped
        return update.update >= until

    with suppress(Stopped):
        oneproj.solve(problem(), checkpoint=file, callbacks=stop, **settings)
    content = io.BytesIO(file.read_bytes().split(b"\n", 2)[2])
    state: dict[str, Any] = torch.load(content, weights_only=True)
    return state


class Stopped(Exception):  # noqa: N818 - it ends a run
    """Raised at the first update: the file is that of the start."""


def sign(file: Path, version: int) -> None:
    """Give a file another format number, and the checksum of its contents."""
    first, _, rest = file.read_bytes().split(b"\n", 2)
    first = first.rpartition(b" ")[0] + f" {version}".encode()
    digest = hashlib.sha256(rest).hexdigest().encode()
    file.write_bytes(b"\n".join([first, digest, rest]))


# --- files that would run code --------------------------------------------------------


def gadgets(victim: Path) -> dict[str, tuple[Any, ...]]:
    """States of the format before, which named classes and was followed anywhere."""
    closer = {"name": str(victim), "delete": True, "close_called": False}
    return {
        "a class whose __del__ removes a file": (
            *("object", "oneproj.experiments.live", "tempfile._TemporaryFileCloser"),
            closer | {"file": ("object", "oneproj.results", "Counts", {})},
        ),
        "a class through a module": (
            *("object", "oneproj.projection.cuts", "np.f2py.subprocess.Popen"),
            {},
        ),
        "a member of what is no enum": (
            *("member", "oneproj.files", "os.PathLike"),
            "anything",
        ),
        "a named tuple of no such class": (
            *("named", "oneproj.projection.cuts", "np.ndarray"),
            [],
        ),
    }


KINDS = list(gadgets(Path()))


@pytest.mark.parametrize("place", ["remembered", "projector", "projection"])
@pytest.mark.parametrize("version", [9, 11])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_checkpoint_that_names_a_class_builds_nothing(
    tmp_path: Path, kind: str, version: int, place: str, rewrite_saved: Rewrite
) -> None:
    file, victim = tmp_path / "run.pt", tmp_path / "victim"
    victim.touch()
    state = save(file, method="projected-sgd")
    gadget = gadgets(victim)[kind]
    state["method"][place] = (
        ("tuple", [("dict", [["_past", gadget]]), None])
        if place == "remembered"
        else gadget
    )
    rewrite_saved(file, state)
    sign(file, version)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(oneproj.CheckpointError):
        solve(file, method="projected-sgd")
    assert sorted(tmp_path.iterdir()) == before, "nothing was made or removed"


# --- one entry of another form at a time ----------------------------------------------

Path_ = tuple[Any, ...]
DELETE = object()


def places(state: Any, at: Path_ = ()) -> Iterator[Path_]:  # noqa: ANN401 - plain data
    """Where a new run has something to compare with, from the top down."""
    items: Any = ()
    if isinstance(state, dict) and all(isinstance(name, str) for name in state):
        items = state.items()
    elif isinstance(state, list | tuple):
        items = enumerate(state[:2])
    for name, item in items:
        if item is not None and not (isinstance(item, list | dict) and not item):
            yield (*at, name)
            yield from places(item, (*at, name))


def changed(state: Any, at: Path_, change: Any) -> Any:  # noqa: ANN401 - plain data
    """The state with another entry at one place; the others are not copied."""
    name, *rest = at
    kept = list(state) if isinstance(state, tuple) else copy.copy(state)
    if rest:
        kept[name] = changed(kept[name], tuple(rest), change)
    elif change is DELETE:
        del kept[name]
    else:
        kept[name] = change(kept[name])
    return tuple(kept) if isinstance(state, tuple) else kept


def wrong(value: Any) -> list[Any]:  # noqa: ANN401 - plain data
    """Changes of one entry: other types, other names, other shapes."""
    changes: list[Any] = [DELETE, lambda _: "word", lambda _: {"a": 1}]
    if isinstance(value, Tensor):
        changes += [
            lambda t: t[None],
            lambda t: t.to(torch.int16),
            lambda t: t.reshape(-1)[:-1],
        ]
        if value.is_floating_point():
            changes += [lambda t: t * float("nan")]
    if isinstance(value, dict):
        changes += [lambda d: {**d, "more": 1}, lambda _: {}, list]
    if isinstance(value, list | tuple):
        changes += [lambda items: [*items, *items], lambda _: []]
    return changes


CASES = [
    ("one-projection", "anchored", {}),
    ("one-projection", "exact", {"base": "momentum", "strength": 3.0}),
    ("one-projection", "minibatch", {"select": "random", "inner_steps": 2}),
    ("projected-sgd", "exact", {"base": "adam"}),
    ("penalty-sgd", "anchored", {}),
    ("lagrangian", "minibatch", {"select": "average", "base": "adam"}),
    ("switching-subgradient", "exact", {"select": "random"}),
]


def test_every_method_and_every_oracle_is_among_the_cases() -> None:
    assert {method for method, _, _ in CASES} == set(RESUMABLE)
    assert {oracle for _, oracle, _ in CASES} == set(ORACLES)


@pytest.mark.parametrize(("method", "oracle", "options"), CASES)
def test_an_entry_of_another_form_is_refused(
    tmp_path: Path,
    method: str,
    oracle: str,
    options: dict[str, Any],
    rewrite_saved: Rewrite,
) -> None:
    file = tmp_path / "run.pt"
    arguments = {"method": method, "oracle": oracle, **options}
    new, state = (
        save(tmp_path / "new.pt", until=0, **arguments),
        save(file, **arguments),
    )
    del new["start"]  # a copy of the parameters, which a resumed run takes from there
    turns = itertools.count()
    for at in list(places(new)):
        entry = new
        for name in at:
            entry = entry[name]
        changes = wrong(entry)
        rewrite_saved(file, changed(state, at, changes[next(turns) % len(changes)]))
        with pytest.raises(oneproj.CheckpointError, match="checkpoint"):
            solve(file, **arguments)
    rewrite_saved(file, state)
    assert solve(file, **arguments).status.ok, "the state itself is fine"


# --- random changes, also of what a new run does not have yet -------------------------


def all_places(state: Any, at: Path_ = ()) -> Iterator[Path_]:  # noqa: ANN401 - plain data
    """Every entry, from the top down; of long lists the first few."""
    items: Any = ()
    if isinstance(state, dict):
        items = state.items()
    elif isinstance(state, list | tuple):
        items = list(enumerate(state))[:4]
    for name, item in items:
        yield (*at, name)
        yield from all_places(item, (*at, name))


def odd_values(old: Any) -> list[Any]:  # noqa: ANN401 - plain data
    """What does not belong there, or hardly; DELETE takes the entry out."""
    odd: list[Any] = [
        *(None, "word", True, -1, 2.5, float("nan"), 10**30, -(10**30), [], {}, DELETE),
        *([1, 2, 3], {"a": 1}, {0: {"step": "x"}}, torch.ones(2, 2)),
        *(torch.ones(3), [torch.ones(5)], [old], {"x": old}),
    ]
    if isinstance(old, Tensor):
        odd += [old[None], old.reshape(-1)[:-1], old.to(torch.int16), old.tolist()]
    if isinstance(old, list | tuple):
        odd += [[*old, *old], list(old)[:-1]]
    if isinstance(old, dict):
        odd += [old | {"more": 1}, dict(list(old.items())[1:])]
    return odd


def outcome_of_a_random_change(
    file: Path, case: int, draw: random.Random, rewrite: Rewrite
) -> BaseException | None:
    """Resume from a checkpoint with another value at one place; its error, if any."""
    method, oracle, options = CASES[case % len(CASES)]
    arguments = {"method": method, "oracle": oracle, **options}
    state = save(file, until=STEPS - 1, **arguments)
    at = draw.choice(list(all_places(state)))
    entry = state
    for name in at:
        entry = entry[name]
    odd = draw.choice(odd_values(entry))
    rewrite(file, changed(state, at, odd if odd is DELETE else lambda _: odd))
    try:
        solve(file, **arguments)
    except Exception as error:  # noqa: BLE001 - of any kind: that is the question
        error.add_note(f"{odd!r} at {at} of {method}")
        return error
    finally:
        file.unlink()
    return None


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_changed_the_error_is_one_of_checkpoints(
    tmp_path: Path, seed: int, rewrite_saved: Rewrite
) -> None:
    draw, refused = random.Random(seed), 0  # noqa: S311 - a test, no secret
    for case in range(14):
        file = tmp_path / "run.pt"
        error = outcome_of_a_random_change(file, case, draw, rewrite_saved)
        # A value that is not finite is reported as such, where it is used.
        own = oneproj.CheckpointError | oneproj.NonFiniteError
        if error is not None and not isinstance(error, own):
            raise error
        refused += error is not None
    assert refused >= 7, "most of these changes leave no run to go on with"


@pytest.mark.parametrize("update", [-5, 10**9, STEPS + 1, True, 2.5, "3", None])
def test_an_update_outside_of_the_run_is_refused(
    tmp_path: Path, update: object, rewrite_saved: Rewrite
) -> None:
    file = tmp_path / "run.pt"
    state = save(file)
    rewrite_saved(file, state | {"update": update})
    with pytest.raises(oneproj.CheckpointError, match=r"update should be a whole num"):
        solve(file)


def test_what_is_refused_leaves_the_problem(
    tmp_path: Path, rewrite_saved: Rewrite
) -> None:
    file = tmp_path / "run.pt"
    state = save(file)
    state["history"]["seconds"] = "long"
    rewrite_saved(file, state)
    built = problem()
    before, noise = built.parameters[0].detach().clone(), torch.get_rng_state()
    with pytest.raises(oneproj.CheckpointError, match=r"history\.seconds should be"):
        oneproj.solve(
            built, steps=STEPS, batch_size=8, checkpoint=oneproj.Checkpoint(file)
        )
    assert torch.equal(built.parameters[0], before)
    assert torch.equal(torch.get_rng_state(), noise)


@pytest.mark.parametrize(
    "contents", [b"", b"\x80\x04\x95", b"PK\x03\x04", b"\xff" * 99]
)
def test_contents_that_torch_cannot_read_are_refused(
    tmp_path: Path, contents: bytes
) -> None:
    file = tmp_path / "run.pt"
    save(file)
    first, _, _ = file.read_bytes().split(b"\n", 2)
    digest = hashlib.sha256(contents).hexdigest().encode()
    file.write_bytes(b"\n".join([first, digest, contents]))
    with pytest.raises(oneproj.CheckpointError, match="cannot read it"):
        solve(file)
