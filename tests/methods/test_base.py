"""The context of a run: what is chosen where the user chose nothing."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch.utils.data import TensorDataset

import oneproj
from oneproj import Projection, Status, distributed
from oneproj.methods.base import TWICE, Context, prepare
from oneproj.oracles import ORACLES, Anchored, Exact
from oneproj.oracles.plan import (
    ANCHORS_PER_PASS,
    BETWEEN_ANCHORS,
    CENTERS_PER_ANCHOR,
    GRADIENT_EXAMPLES,
    VALUES_PER_GRADIENT,
    AnchorPlan,
)
from oneproj.problem.functions import CHUNK_SIZE
from oneproj.projection import AbstractProjector
from oneproj.theory import Schedule
from oneproj.training.solve import Settings

OWN = oneproj.Defaults()
LARGEST, SMALLEST = OWN.largest_batch_size, OWN.batch_size


def make(*rows: int | None, width: int = 1, tabular: bool = True) -> oneproj.Problem:
    """One constraint per entry, on so many examples; None for one without data."""
    w = torch.ones(width, requires_grad=True)
    chunk_size = CHUNK_SIZE if tabular else CHUNK_SIZE - 1
    constraints = {
        f"c{j}": oneproj.function(w.sum) <= 1.0
        if n is None
        else oneproj.mean(
            lambda batch: batch * w.sum(), torch.ones(n), chunk_size=chunk_size
        )
        <= 1.0
        for j, n in enumerate(rows)
    }
    return oneproj.Problem(w, oneproj.function(w.sum), constraints, radius=1e3)


def ready(problem: oneproj.Problem, **arguments: object) -> Context:
    left_out = {
        "steps": None,
        "seed": 0,
        "schedule": None,
        "projector": "auto",
        "oracle": "auto",
        "batch_size": None,
        "anchor_size": None,
    }
    return prepare(problem, **(left_out | arguments))


# --- the oracle ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), "exact"),
        ((None,), "exact"),
        ((GRADIENT_EXAMPLES,), "exact"),
        ((GRADIENT_EXAMPLES + 1,), "anchored"),
        ((None, 10, 9000), "anchored"),
        ((10, 20, 30), "exact"),
    ],
)
def test_the_oracle_follows_the_largest_data(
    rows: tuple[int | None, ...], expected: str
) -> None:
    assert ready(make(*rows)).oracle_class.name == expected


def test_small_is_relative_to_the_minibatch() -> None:
    costly = make(100, tabular=False)
    assert ready(costly, batch_size=49).oracle_class.name == "anchored"
    assert ready(costly, batch_size=50).oracle_class.name == "exact"
    assert ready(make(100), batch_size=49).oracle_class.name == "anchored"
    assert ready(make(100), batch_size=50).oracle_class.name == "exact"


def test_small_is_relative_to_the_parameters_too() -> None:
    width = OWN.free_work // 500  # minibatches of 500 examples
    rows = OWN.whole_data_batches * 500
    assert ready(make(rows, width=width)).oracle_class.name == "exact"
    assert ready(make(rows + 1, width=width)).oracle_class.name == "anchored"
    mixed = ready(make(rows, rows + 1, None, width=width))
    assert (mixed.oracle_class.name, mixed.anchors.at_once) == ("anchored", rows)
    oracle = mixed.oracle(oneproj.Hinge(1.0), renew_every=None)
    oracle.anchor()
    with torch.no_grad():
        mixed.problem.parameters[0].add_(1.0)
    for _ in range(4):
        before = mixed.counts.constraint_passes
        oracle.backward()
        assert mixed.counts.constraint_passes == before + 1


def test_small_anchors_ask_for_little_to_be_seen_at_every_update() -> None:
    # With all of it at every update, smaller anchors would make a run costlier.
    context = ready(make(1500), anchor_size=100)
    assert (context.oracle_class.name, context.anchors.at_once) == ("anchored", 100)
    assert ready(make(100), anchor_size=100).oracle_class.name == "exact"


def test_sequences_of_tokens_are_no_table() -> None:
    table = torch.nn.Embedding(50, 8)
    for tokens, expected in [
        (torch.zeros(9, 512), LARGEST),
        (torch.zeros(9, 512).long(), SMALLEST),
    ]:
        risk = oneproj.mean(lambda t: table(t.long()).sum(dim=(1, 2)), data=tokens)
        problem = oneproj.Problem(table.parameters(), risk, {}, radius=1e3)
        assert ready(problem).batch_size == expected


def test_no_more_is_seen_at_once_than_an_anchor_may_see() -> None:
    assert ready(make(1000), oracle="anchored", anchor_size=30).anchors.at_once == 30


def test_a_schedule_asks_for_the_exact_oracle(short_schedule: Schedule) -> None:
    context = ready(make(9000), schedule=short_schedule)
    assert context.oracle_class.name == "exact"
    assert context.steps == short_schedule.gradient_calls


@pytest.mark.parametrize(
    ("module", "oracle"),
    [
        (torch.nn.Dropout(0.5), "minibatch"),
        (torch.nn.BatchNorm1d(2), "minibatch"),
        (torch.nn.BatchNorm1d(2).eval(), "anchored"),
        (torch.nn.Linear(2, 2), "anchored"),
    ],
)
def test_no_anchor_corrects_a_model_that_training_mode_changes(
    module: torch.nn.Module, oracle: str
) -> None:
    problem = make(9000)
    problem.model = torch.nn.Sequential(module)
    assert ready(problem).oracle_class.name == oracle


@pytest.mark.parametrize("name", ORACLES)
def test_what_was_asked_for_is_taken(name: str) -> None:
    context = ready(make(9000), oracle=name)
    assert context.oracle_class.name == context.describe()["oracle"] == name
    assert type(context.oracle(None)) is ORACLES[name]


# --- anchors ------------------------------------------------------------------


def per_anchor(anchors: AnchorPlan, rows: int) -> float:
    """Examples that an anchor evaluates, on average over a run."""
    size = anchors.reference_size
    whole = rows if size is None else min(rows, size)
    passes = 0.0 if anchors.reference_every is None else whole / anchors.reference_every
    return (anchors.size or 0) + passes


def test_an_anchor_sees_all_data_where_that_is_affordable() -> None:
    width = 2000
    rows = ANCHORS_PER_PASS * OWN.anchor_work // width  # a pass serves several anchors
    assert ready(make(rows, width=width)).anchors.size is None
    larger = ready(make(rows + 1, width=width)).anchors
    assert larger.reference_size == rows // 2
    assert larger.size == int(OWN.anchor_share * BETWEEN_ANCHORS * LARGEST)
    assert ready(make(None)).anchors.size is None
    assert ready(make()).anchors.size is None


@pytest.mark.parametrize("rows", [10**5, 10**6, 10**7])
def test_what_anchors_see_does_not_grow_with_the_rows(rows: int) -> None:
    width = 2000
    anchors = ready(make(rows, width=width)).anchors
    budget = OWN.anchor_work / width
    assert per_anchor(anchors, rows) <= budget
    assert (anchors.reference_size or rows) >= budget  # a mean of many, all the same


def wide(rows: int) -> oneproj.Problem:
    """With so many parameters that no example is affordable, without the memory."""
    problem = make(rows)
    problem.parameters = [torch.empty(1).expand(OWN.anchor_work + 1)]
    return problem


@pytest.mark.parametrize("rows", [513, 4000, 12288, 10**6])
def test_a_costly_anchor_costs_a_share_of_what_is_seen_between_two(rows: int) -> None:
    share = int(OWN.anchor_share * BETWEEN_ANCHORS * SMALLEST)
    assert ready(wide(share)).anchors.size is None
    anchors = ready(wide(rows)).anchors
    assert anchors.size == share
    # Values cost less than gradients: all of them as much as the gradients, at most.
    assert per_anchor(anchors, rows) - share <= VALUES_PER_GRADIENT * share


def test_values_are_compared_where_rounding_does_not_hide_their_change() -> None:
    assert ready(wide(4000), oracle="minibatch").anchors.reference_every is None
    training = wide(4000)
    training.model = torch.nn.Dropout(0.5)  # anchors are in evaluation mode
    assert ready(training, oracle="anchored").anchors.reference_every is not None
    narrow = wide(4000)
    few_bits = torch.empty(1, dtype=torch.bfloat16)
    narrow.parameters = [few_bits.expand(OWN.anchor_work + 1)]
    assert ready(narrow).anchors.reference_every is None


def test_strengths_alone_take_a_costly_anchor_at_every_second_centre() -> None:
    assert ready(wide(4000), oracle="minibatch").anchors.every == CENTERS_PER_ANCHOR
    assert ready(wide(4000), oracle="minibatch", anchor_size=320).anchors.every == 1
    assert ready(make(4000), oracle="minibatch").anchors.every == 1
    assert (
        ready(wide(4000)).anchors.every == 1
    )  # its centre is where minibatches cancel


def test_an_anchor_size_that_was_asked_for_is_taken() -> None:
    assert ready(make(9000), anchor_size=7).anchors.size == 7
    assert ready(make(9000), anchor_size=10**6).anchors.size == 10**6


@pytest.mark.parametrize(
    ("arguments", "looks"),
    [({}, [1, 11, 21]), ({"renew_every": 4}, [1, 5, 9, 13, 17, 21, 25])],
)
def test_looking_renews_anchors_unless_the_method_does(
    arguments: dict[str, int], looks: list[int]
) -> None:
    context = ready(make(300, tabular=False), oracle="anchored")
    oracle = context.oracle(oneproj.Hinge(1.0), **arguments)
    assert isinstance(oracle, Anchored)
    found = []
    for k in range(1, 26):
        before = context.counts.constraint_passes
        oracle.backward()
        if context.counts.constraint_passes > before:
            found.append(k)
    assert found == looks


def test_the_size_of_the_anchor_reaches_the_oracle() -> None:
    context = ready(make(300), oracle="anchored", anchor_size=30)
    oracle = context.oracle(oneproj.Hinge(1.0), renew_every=None)
    oracle.anchor()
    assert context.counts.constraint_passes == 0
    assert context.counts.constraint_gradients == 1


# --- the rest -----------------------------------------------------------------


def test_defaults() -> None:
    context = ready(make(10))
    assert context.steps == OWN.steps == 500
    assert isinstance(context.oracle(None), Exact)
    described = {"steps": 500, "batch_size": LARGEST, "anchor_size": None}
    assert described.items() <= context.describe().items()


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (1, LARGEST),
        (OWN.free_work // LARGEST, LARGEST),
        (OWN.free_work // 200, 200),
        (OWN.free_work // SMALLEST, SMALLEST),
        (OWN.free_work, SMALLEST),
    ],
)
def test_minibatches_are_as_large_as_costs_little(width: int, expected: int) -> None:
    assert ready(make(10, width=width)).batch_size == expected
    assert ready(make(10, width=width), batch_size=7).batch_size == 7


def test_images_sequences_and_items_come_in_small_minibatches() -> None:
    w = torch.ones(1, requires_grad=True)
    table = oneproj.mean(lambda batch: w * batch.sum(1), torch.ones(300, 3))
    image = oneproj.mean(lambda batch: w * batch.mean((1, 2)), torch.ones(300, 3, 3))
    items = oneproj.mean(lambda batch: w * batch[0], TensorDataset(torch.ones(300)))
    for term, expected in [(table, LARGEST), (image, SMALLEST), (items, SMALLEST)]:
        for objective, other in [(term, table), (table, term), (table + term, table)]:
            problem = oneproj.Problem(w, objective, {"cap": other <= 5.0})
            assert ready(problem).batch_size == expected


def test_seeds_give_independent_streams() -> None:
    draws = set()
    for seed in (0, 1):
        context = ready(make(10), seed=seed)
        for generator in (context.sampling, context.selection):
            draws.add(int(torch.randint(2**60, (), generator=generator)))
    assert len(draws) == 4


@pytest.mark.parametrize("name", ["steps", "batch_size", "anchor_size"])
@pytest.mark.parametrize("bad", [0, -1, 2.5, "64", float("nan")])
def test_counts_are_whole_numbers(name: str, bad: object) -> None:
    message = f"{name} must be a whole number >= 1"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        ready(make(9000), **{name: bad})


def test_an_unknown_oracle_is_refused_with_those_there_are() -> None:
    message = "no oracle 'psychic'. Known: auto, exact, minibatch, anchored"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        ready(make(10), oracle="psychic")


# --- the projection, and its undoing -----------------------------------------


class Wanders(AbstractProjector):
    """Goes far away, and then fails or breaks."""

    name = "wanders"

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error

    def accepts(self, constraints: object) -> None:
        del constraints

    def project(
        self, parameters: list[torch.Tensor], constraints: object
    ) -> Projection:
        del constraints
        with torch.no_grad():
            parameters[0].fill_(1e5)
        if self._error is not None:
            raise self._error
        return Projection(Status.INFEASIBLE, 1.4e5, {"size": 0.5}, {}, 3)


def far_away(projector: object, radius: float = 100.0) -> Context:
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    far = oneproj.function(lambda: w[0], curvature="linear") >= 20.0
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"far": far}, radius=radius)
    return ready(problem, projector=projector)


def test_a_failed_projection_can_be_undone_also_through_a_copy() -> None:
    context = far_away(Wanders())
    (w,) = context.problem.parameters
    assert not replace(context).project().status.ok
    assert w.tolist() == [1e5, 1e5]
    context.undo()
    assert w.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("broken")])
def test_an_error_leaves_the_point_before(error: BaseException) -> None:
    context = far_away(Wanders(error))
    with pytest.raises(type(error)):
        context.project()
    assert context.problem.parameters[0].tolist() == [3.0, 4.0]


def test_without_a_projection_there_is_nothing_to_undo() -> None:
    context = far_away(Wanders())
    context.undo()
    assert context.problem.parameters[0].tolist() == [3.0, 4.0]


def test_two_projections_are_explained_and_one_is_not() -> None:
    one = far_away("auto")
    assert one.project().remark == ""
    assert one.counts.projections == 1
    # The point is at the edge of a ball that has no feasible point.
    two = far_away("auto", radius=5.0)
    found = two.project()
    assert found.status.ok
    assert found.remark == TWICE
    assert two.counts.projections == 2


def test_ranks_compare_the_name_of_an_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drifting(ORACLES["anchored"]):  # type: ignore[misc] - an oracle of one's own
        name = "drifting"

    w = torch.zeros(2, requires_grad=True)
    problem = oneproj.Problem(w, oneproj.function(w.sum), {})
    monkeypatch.setattr(distributed, "compares_ranks", lambda: True)
    others = dict.fromkeys((f.name for f in fields(Settings)), None)
    given = others | {"on_failure": "raise", "options": {}, "certify": True}
    told = [
        Settings(**given | {"oracle": oracle}).facts(problem, None)["oracle"]
        for oracle in (Drifting, "exact", ORACLES["exact"])
    ]
    names = ["'drifting'", "'exact'", "'exact'"]
    assert [fact.value for fact in told] == names
