"""Records: what is written is read, and what is damaged is refused by its name."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj.files import drafting
from oneproj_paper.errors import DamagedRecordError, RecordError
from oneproj_paper.experiments.record_schema import (
    CertificateRecord,
    MeasureRecord,
    Record,
)
from oneproj_paper.experiments.records import (
    Damaged,
    from_json,
    read_folder,
    set_aside,
    to_json,
    write_record,
)

Maker = Callable[..., Record]

numbers = st.floats(allow_nan=False)
values = st.dictionaries(st.text(), numbers)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
measures = st.builds(
    MeasureRecord,
    name=st.text(),
    value=numbers,
    bound=st.none() | numbers,
    holds=st.none() | st.booleans(),
    source=st.text(),
    error=numbers,
)


fields = st.fixed_dictionaries(
    {
        "settings": st.dictionaries(st.text(), plain),
        "residuals": values,
        "metrics": st.dictionaries(st.text(), values),
        "history": st.dictionaries(st.text(), st.lists(numbers).map(tuple)),
        "certificate": st.builds(
            CertificateRecord,
            measures=st.lists(measures).map(tuple),
            multipliers=values,
            holds=st.booleans(),
        ),
        "objective": numbers,
        "extrapolated_from": st.none() | st.integers(),
        "warnings": st.lists(st.text()).map(tuple),
    }
)


@given(changes=fields)
def test_what_is_written_is_read(make_record: Maker, changes: dict[str, Any]) -> None:
    record = make_record(**changes)
    assert from_json(to_json(record)) == record


def test_what_json_has_no_word_for_becomes_a_string(make_record: Maker) -> None:
    record = make_record(objective=math.nan, runtime=-math.inf)
    text = to_json(record)
    plain = json.loads(text, parse_constant=pytest.fail)
    assert (plain["objective"], plain["runtime"]) == ("nan", "-inf")
    assert math.isnan(from_json(text).objective)
    assert from_json(text).runtime == -math.inf


def test_what_is_no_data_is_not_written(make_record: Maker) -> None:
    with pytest.raises(TypeError, match="which JSON cannot hold"):
        to_json(make_record(machine={"home": Path("x")}))


def test_records_are_read_in_order_from_their_places(
    make_record: Maker, tmp_path: Path
) -> None:
    made = [
        make_record(experiment=experiment, projector=projector, seed=seed)
        for experiment in ("abstention-credit", "abstention-nasa")
        for projector in ("dual-bisection", "cuts")
        for seed in (10, 2)
    ]
    paths = {write_record(record, tmp_path) for record in made}
    assert len(paths) == len(made)
    place = "abstention-nasa/paper/one-projection/cuts/seed-0002.json"
    assert tmp_path / place in paths
    records, damaged = read_folder(tmp_path)
    assert records == sorted(made, key=lambda record: record.key)
    assert damaged == []
    assert all(path.suffix == ".json" for path in tmp_path.rglob("*") if path.is_file())


DAMAGES: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text[: len(text) // 2], "truncated or damaged"),
    (lambda _: "", "truncated or damaged"),
    (lambda _: "[" * 100_000, "truncated or damaged"),
    (lambda _: "[1]", "names no format"),
    (lambda text: text.replace('"seed": 0', '"seed": "0"'), "it.seed should be"),
    (lambda text: text.replace('"seed": 0', '"seed": true'), "it.seed should be"),
    (lambda text: text.replace('"runtime"', '"time"'), "it has no runtime"),
    (lambda text: text.replace('"cores"', '"cores'), "truncated or damaged"),
    (lambda text: text.replace('"paper"', '"ours"'), "one of paper, oneproj"),
    (lambda text: text.replace("{", '{"x": 1,', 1), "an unknown x"),
    (lambda text: text.replace("600,", ""), "a list of 2"),
    (lambda text: text.replace("0.31", '"big"'), "class 0 error should be a num"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_file_is_named_and_costs_no_other(
    make_record: Maker,
    tmp_path: Path,
    damage: Callable[[str], str],
    message: str,
) -> None:
    path = write_record(make_record(), tmp_path)
    sound = make_record(seed=1)
    write_record(sound, tmp_path)
    text = damage(path.read_text())
    path.write_text(text)
    records, ((place, reason),) = read_folder(tmp_path)
    assert records == [sound]
    assert tmp_path / place == path
    assert message in reason
    assert str(path) in reason
    with pytest.raises(DamagedRecordError, match=message):
        from_json(text)


CHANGES: dict[str, dict[str, Any]] = {
    "feasible is False, its residuals say True": {"feasible": False},
    "feasible is True, its residuals say False": {
        "residuals": {"class 0 error": math.nan}
    },
    "complete is not": {"updates": 400},
    "a runtime of -1.0": {"runtime": -1.0},
    "a runtime of nan": {"runtime": math.nan},
    "history are of different lengths": {
        "history": {"update": (0.0, 500.0), "objective": (0.7,)}
    },
    "metrics on test data": {"metrics": {"train": {"ambiguity": 0.1}}},
    "of different constraints": {"risks": {}},
    "settings has no caps": {
        "settings": {
            "thresholds": None,
            "slack": None,
            "target_error": 0.1,
            "hidden": [],
        }
    },
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_record_that_was_changed_is_damage(
    make_record: Maker, tmp_path: Path, words: str
) -> None:
    path = write_record(make_record(**CHANGES[words]), tmp_path)
    found = read_folder(tmp_path)
    assert found.records == []
    assert f"{path} was changed: " in found.damaged[0].reason
    assert words in found.damaged[0].reason


def test_thresholds_of_one_class_are_damage(make_record: Maker, tmp_path: Path) -> None:
    settings = make_record().settings | {"thresholds": [0.3]}
    write_record(make_record(settings=settings), tmp_path)
    (damaged,) = read_folder(tmp_path).damaged
    assert "settings.thresholds should be a list of 2" in damaged.reason


def test_bytes_that_are_no_text_are_damage(make_record: Maker, tmp_path: Path) -> None:
    path = write_record(make_record(), tmp_path)
    path.write_bytes(b"\xff" + path.read_bytes())
    ((_, reason),) = read_folder(tmp_path).damaged
    assert f"{path} cannot be read" in reason


def test_what_cannot_be_read_is_damage(make_record: Maker, tmp_path: Path) -> None:
    path = write_record(make_record(), tmp_path)
    path.unlink()
    path.mkdir()
    ((_, reason),) = read_folder(tmp_path).damaged
    assert f"{path} cannot be read" in reason


def test_a_record_in_the_place_of_another_is_damage(
    make_record: Maker, tmp_path: Path
) -> None:
    path = write_record(make_record(), tmp_path)
    moved = path.rename(path.with_name("seed-0001.json"))
    records, ((place, reason),) = read_folder(tmp_path)
    assert records == []
    assert tmp_path / place == moved
    assert f"another run, whose place is {path}" in reason


def test_a_record_of_another_format_is_refused(
    make_record: Maker, tmp_path: Path
) -> None:
    # It is whole: another version of the library reads it, so it is not set aside.
    path = write_record(make_record(), tmp_path)
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(RecordError, match="has format 3") as caught:
        read_folder(tmp_path)
    assert not isinstance(caught.value, DamagedRecordError)
    assert str(path) in str(caught.value)


def test_numbers_that_were_changed_by_hand_are_refused_by_name(
    make_record: Maker, tmp_path: Path
) -> None:
    path = write_record(make_record(objective=0.512), tmp_path)
    sound = make_record(seed=1)
    write_record(sound, tmp_path)
    text = path.read_text()
    path.write_text(text.replace("0.512", "0.412"))
    records, ((place, reason),) = read_folder(tmp_path)
    assert records == [sound]
    assert tmp_path / place == path
    assert f"{path} was changed: its contents do not have the checksum" in reason
    path.write_text(text.replace('"checksum"', '"sum"'))
    assert len(read_folder(tmp_path).damaged) == 1
    path.write_text(json.dumps(json.loads(text)))  # another layout, the same contents
    assert read_folder(tmp_path).damaged == []


def test_records_of_before_the_checksum_are_refused_with_the_way_to_make_them(
    make_record: Maker, tmp_path: Path
) -> None:
    path = write_record(make_record(), tmp_path)
    plain = json.loads(path.read_text())
    del plain["checksum"]
    path.write_text(json.dumps(plain | {"format": 1}))
    with pytest.raises(RecordError, match=r"has format 1.*reproduce` again"):
        read_folder(tmp_path)


def test_what_is_set_aside_is_kept_and_not_read(
    make_record: Maker, tmp_path: Path
) -> None:
    path = write_record(make_record(), tmp_path)
    asides = []
    for text in ("{", "[1]", "{"):
        path.write_text(text)
        assert [each.place for each in read_folder(tmp_path).damaged] == [
            path.relative_to(tmp_path)
        ]
        asides.append(set_aside(path))
        assert read_folder(tmp_path) == ([], [])
    assert [aside.read_text() for aside in asides] == ["{", "[1]", "{"]


def test_damaged_files_come_in_order(make_record: Maker, tmp_path: Path) -> None:
    for seed in (3, 1, 2, 0):
        write_record(make_record(seed=seed), tmp_path).write_text("")
    found = read_folder(tmp_path).damaged
    assert [each.place.name for each in found] == [
        f"seed-000{s}.json" for s in range(4)
    ]
    assert all(isinstance(each, Damaged) for each in found)


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_write_that_fails_leaves_the_record_before(
    make_record: Maker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
) -> None:
    before = make_record()
    write_record(before, tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(OSError, match="No space"):
        write_record(make_record(objective=9.0), tmp_path)
    assert read_folder(tmp_path) == ([before], [])
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_a_draft_is_no_record(make_record: Maker, tmp_path: Path) -> None:
    path = write_record(make_record(), tmp_path)
    with drafting(path.with_name("seed-0001.json")) as draft:
        draft.write_text("{")
        assert len(list(path.parent.iterdir())) == 2
        assert read_folder(tmp_path) == ([make_record()], [])
