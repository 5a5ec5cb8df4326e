"""Data as batches: fixed order, explicit generators, no copies, clear refusals."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import oneproj
from oneproj import InvalidProblemError
from oneproj.problem.data import as_source, changes

X = torch.arange(10.0).reshape(5, 2)
Y = torch.arange(5)
examples = settings(derandomize=True, deadline=None, max_examples=50)


class Listed(Dataset[Any]):
    """A map-style data set that is not made of one tensor."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 - any item
        return self.items[index]


class Unsized(Dataset[Any]):
    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(float(index))


class Frame:
    """Columns of another library."""


class Stream(IterableDataset[Any]):
    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Tensor]:
        return iter(Y)


def shuffled() -> DataLoader[Any]:
    return DataLoader(
        TensorDataset(X, Y),
        batch_size=2,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
    )


ROWS: dict[str, Any] = {
    "tuple": (X, Y),
    "list": [X, Y],
    "dict": {"x": X, "y": Y},
    "Dataset": TensorDataset(X, Y),
    "items": Listed([(X[i], Y[i]) for i in range(5)]),
    "dict items": Listed([{"x": X[i], "y": Y[i]} for i in range(5)]),
    "DataLoader": DataLoader(TensorDataset(X, Y), batch_size=3),
    "shuffled": shuffled(),
}


def rows(batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - every kind of batch
    x, y = batch.values() if isinstance(batch, dict) else batch
    return x, y


# --- every kind of data -------------------------------------------------------


@pytest.mark.parametrize("data", ROWS.values(), ids=ROWS)
def test_example_i_is_row_i_of_every_kind_of_data(data: Any) -> None:  # noqa: ANN401
    source = as_source(data)
    assert source.size == 5
    x, y = rows(source.read(slice(1, 4)))
    assert torch.equal(x, X[1:4])
    assert torch.equal(y, Y[1:4])
    indices = torch.tensor([3, 0, 3])
    x, y = rows(source.read(indices))
    assert torch.equal(x, X[indices])
    assert torch.equal(y, Y[indices])


def test_a_batch_has_the_type_of_the_data() -> None:
    assert isinstance(as_source(X).read(slice(0, 2)), Tensor)
    assert isinstance(as_source((X, Y)).read(slice(0, 2)), tuple)
    assert list(as_source({"x": X, "y": Y}).read(slice(0, 2))) == ["x", "y"]


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


class Named(UserDict[str, Tensor]):
    """As tokenizers return it: the entries are attributes too."""

    def __getattr__(self, name: str) -> Tensor:
        if name == "data":
            raise AttributeError(name)
        return self.data[name]


class Fixed(Mapping[str, Tensor]):
    """Of which no other can be made."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._of = {"x": x, "y": y}

    def __getitem__(self, name: str) -> Tensor:
        return self._of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return 2


class Shared(Fixed, MutableMapping[str, Tensor]):
    """Whose shallow copy holds the very same dict."""

    def __init__(self, of: dict[str, Tensor]) -> None:
        self._of = of

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._of[name] = value

    def __delitem__(self, name: str) -> None:
        del self._of[name]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (Pair(torch.arange(3), torch.arange(3)), Pair),
        (Named(x=torch.arange(3), y=torch.arange(3)), Named),
        (OrderedDict(x=torch.arange(3), y=torch.arange(3)), OrderedDict),
        (defaultdict(list, x=torch.arange(3), y=torch.arange(3)), defaultdict),
        (Fixed(torch.arange(3), torch.arange(3)), dict),
        (Shared({"x": torch.arange(3), "y": torch.arange(3)}), dict),
        ({"x": torch.arange(3), "y": torch.arange(3)}, dict),
    ],
    ids=["Pair", "Named", "OrderedDict", "defaultdict", "Fixed", "Shared", "dict"],
)
def test_a_batch_has_the_class_of_the_data(data: Any, kind: type) -> None:  # noqa: ANN401 - of all classes
    source = as_source(data)
    for batch in (source.read(slice(1, 3)), source.read(torch.tensor([1, 2]))):
        assert type(batch) is kind
        x = batch.x if kind in {Pair, Named} else batch["x"]
        assert x.tolist() == [1, 2]
    whole = data.x if kind is Pair else data["x"]
    assert whole.tolist() == [0, 1, 2], "the user's own is as it was"


def test_a_shuffling_loader_is_read_in_the_order_of_its_data_set() -> None:
    loader = shuffled()
    assert not torch.equal(torch.cat([y for _, y in loader]), Y), "it does shuffle"
    source = as_source(loader)
    for _ in range(2):
        seen = [source.read(span)[1] for span in source.chunks(2)]
        assert torch.equal(torch.cat(seen), Y)


def test_the_collate_function_of_a_loader_is_used() -> None:
    ragged = Listed([[1.0], [2.0, 3.0]])
    loader = DataLoader(ragged, collate_fn=lambda items: [len(item) for item in items])
    assert as_source(loader).read(slice(0, 2)) == [1, 2]


# --- no copies ----------------------------------------------------------------


def test_spans_are_views_of_the_users_tensors() -> None:
    x, y = as_source((X, Y)).read(slice(2, 4))
    assert x.data_ptr() == X[2].data_ptr()
    assert y.data_ptr() == Y[2].data_ptr()


def test_data_changed_by_the_user_is_seen() -> None:
    data = torch.zeros(3)
    source = as_source(data)
    data[1] = 7.0
    assert source.read(slice(1, 2)).item() == 7.0
    assert source.read(torch.tensor([1])).item() == 7.0


def test_a_minibatch_reads_its_own_items_only() -> None:
    class Recording(Listed):
        def __getitem__(self, index: int) -> Any:  # noqa: ANN401 - any item
            read.append(index)
            return super().__getitem__(index)

    read: list[int] = []
    source = as_source(Recording([torch.tensor(float(i)) for i in range(100)]))
    source.read(torch.tensor([4, 90]))
    assert read == [4, 90]


# --- order and chance ---------------------------------------------------------


@examples
@given(size=st.integers(1, 40), chunk=st.integers(1, 50))
def test_spans_cover_everything_once_in_order(size: int, chunk: int) -> None:
    source = as_source(torch.arange(size))
    spans = list(source.chunks(chunk))
    assert torch.equal(torch.cat([source.read(s) for s in spans]), torch.arange(size))
    assert max(span.stop - span.start for span in spans) <= chunk


TERM = oneproj.mean(lambda batch: batch[:, 0], X)


def counts_of_draws(total: int) -> Tensor:
    drawn = TERM.draw(total, torch.Generator().manual_seed(1))
    return torch.bincount(drawn, minlength=TERM.size)


def test_draws_are_uniform_over_all_examples() -> None:
    n = 40_000
    counts = counts_of_draws(n).double()
    # Chi-square with 4 degrees of freedom; 23.5 is its 0.9999 quantile.
    expected = n / 5
    assert float(((counts - expected) ** 2 / expected).sum()) < 23.5


def test_a_minibatch_may_exceed_the_data() -> None:
    assert counts_of_draws(50).sum() == 50


def test_the_generator_alone_decides_the_draw() -> None:
    global_state = torch.get_rng_state()
    first, second = (TERM.draw(20, torch.Generator().manual_seed(3)) for _ in "ab")
    assert torch.equal(first, second)
    other = TERM.draw(20, torch.Generator().manual_seed(4))
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), global_state)


class Workers(Dataset[Tensor]):
    """Each example is its index, and the worker that read it; -1 for this process."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Tensor:
        worker = torch.utils.data.get_worker_info()
        return torch.tensor([float(index), -1.0 if worker is None else worker.id])


def test_the_workers_of_a_loader_read_full_passes_in_order() -> None:
    seen: list[Tensor] = []
    w = torch.ones((), requires_grad=True)

    def values(batch: Tensor) -> Tensor:
        seen.append(batch)
        return w * batch[:, 0]

    loader = DataLoader(Workers(), batch_size=3, shuffle=True, num_workers=2)
    before = torch.get_rng_state()
    term = oneproj.mean(values, data=loader, chunk_size=8)
    assert term.value() == 19.5
    rows = torch.cat(seen)
    assert rows[:, 0].tolist() == list(range(40))
    assert set(rows[:, 1].tolist()) == {0.0, 1.0}
    assert torch.equal(torch.get_rng_state(), before)


# --- refusals -----------------------------------------------------------------

EMPTY = "data is empty: it holds 0 examples.*filter or the split"
STREAM = r"is a stream .*fixed order.*map-style(.|\n)*AutoPenalty"
REFUSED: dict[str, tuple[Any, str]] = {
    "empty tensor": (torch.zeros(0, 3), EMPTY),
    "empty tuple of rows": ((X[:0], Y[:0]), EMPTY),
    "empty dict of rows": ({"x": X[:0]}, EMPTY),
    "empty Dataset": (Listed([]), EMPTY),
    "empty loader": (DataLoader(Listed([])), EMPTY),
    "no tensor": ((), r"got shapes \[\]"),
    "ragged": ((X, Y[:4]), r"same first dimension.*got shapes \[\(5, 2\), \(4,\)\]"),
    "scalar": (torch.tensor(1.0), "counts the examples.*oneproj.function"),
    "NaN": (torch.tensor([1.0, math.nan, math.nan]), "2 NaN or infinite.*Impute"),
    "inf": ((X, torch.full((5, 1), -math.inf)), r"5 NaN or.* shape \(5, 1\)"),
    "NaN in a dict": ({"x": torch.tensor([math.nan])}, "1 NaN or infinite"),
    "stream": (Stream(), STREAM),
    "loader of a stream": (DataLoader(Stream()), STREAM),
    "no length": (Unsized(), STREAM),
    "a list of numbers": ([1.0, 2.0], "must hold tensors, but got float.*as_tensor"),
    "dict of lists": ({"x": [1.0]}, "must hold tensors, but got list"),
    "words": (np.array(["a", "b"]), "dtype <U1.*cannot be seen .*bool. Convert.*uniq"),
    "a frame": (Frame(), r"type Frame is not understood.*frame pass \.to_numpy\(\)"),
    "frames": ((Frame(), Y), r"must hold tensors, but got Frame.*\.to_numpy\(\)"),
    "backwards": (np.arange(3.0)[::-1], r"strides \(-8,\) cannot.*ascontiguousarray"),
    "pairs": ([(X[0], 1), (X[1], 0)], "must hold tensors, but got tuple.*DataLoader"),
    "nested columns": (((X, X), Y), "but got tuple.*flatten.*in place of"),
    "nothing": (None, "Data of type NoneType is not understood"),
}


@pytest.mark.parametrize(("data", "match"), REFUSED.values(), ids=REFUSED)
def test_data_that_cannot_be_averaged_is_refused(data: Any, match: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidProblemError, match=match):
        as_source(data)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_arrays_are_seen_in_their_own_memory_and_dtype(dtype: type) -> None:
    x = np.arange(6).reshape(3, 2).astype(dtype)
    x.flags.writeable = False  # and no warning, which would be an error
    alone, paired = as_source(x), as_source({"x": x, "y": torch.arange(3)})
    assert alone.read(slice(1, 3)).numpy().tolist() == [[2, 3], [4, 5]]
    assert alone.read(slice(1, 3)).numpy().dtype == dtype
    assert alone.read(slice(0, 3)).data_ptr() == x.ctypes.data
    assert paired.read(torch.tensor([2]))["x"].tolist() == [[4, 5]]


def test_changes_are_counted_in_containers_and_through_views() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    batch = {"x": x[:2], "pair": (y, [y[1:]]), "name": "none"}
    before = changes(batch)
    assert changes(batch) == before
    x[3] = 1.0
    assert changes(batch) == before + 1
    y.add_(1.0)
    assert changes(batch) == before + 3
    with torch.inference_mode():
        assert changes(torch.zeros(1)) == 0
