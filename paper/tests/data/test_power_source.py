"""NASA POWER: answers of its daily service, from a local server."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from oneproj.errors import InvalidProblemError
from oneproj_paper.data import nasa_abstention, prepare_nasa_power
from oneproj_paper.data.power_source import PLACES, RAIN, YEARS
from oneproj_paper.data.power_tables import ARTIFACT, COLUMNS, LABEL, PREPARED
from oneproj_paper.data.tables import read_columns
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

if TYPE_CHECKING:
    from tests.data.conftest import Answer, Server

SERVICE = "/api/temporal/daily/point"
TWO = [(40.0, -100.0), (39.5, -99.5)]
DAYS = 40


def weather(place: int) -> np.ndarray:
    """Six variables and the rain; two days miss a value, the last one is dry."""
    rng = np.random.default_rng(place)
    table = rng.normal(20.0, 5.0, size=(DAYS, len(COLUMNS) + 1)).round(2)
    table[:, -1] = np.where(np.arange(DAYS) % 5 == 0, 12.0, 1.5)
    table[-1, -1] = 0.0
    table[3, 0] = table[7, -1] = -999.0
    return table


def answer_of(place: int) -> bytes:
    names = (*COLUMNS, RAIN)
    days = [f"2009{1 + k // 28:02}{1 + k % 28:02}" for k in range(DAYS)]
    columns = weather(place).T.tolist()
    series = {
        n: dict(zip(days, c, strict=True)) for n, c in zip(names, columns, strict=True)
    }
    plain = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [-100.0, 40.0, 700.0]},
        "properties": {"parameter": series},
        "header": {"title": "NASA/POWER", "fill_value": -999.0},
        "messages": [],
        "parameters": {name: {"units": "", "longname": name} for name in names},
    }
    return json.dumps(plain).encode()


@pytest.fixture
def power(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    del folder
    monkeypatch.setattr("oneproj_paper.data.power_source.POWER", server.url)
    server.say(SERVICE, answer_of(0), answer_of(1))
    return server


def complete(place: int) -> np.ndarray:
    return np.delete(weather(place), [3, 7], axis=0)


def test_the_table_has_the_papers_columns_and_no_missing_days(
    power: Server, cache: Path
) -> None:
    path = prepare_nasa_power(places=TWO, years=(2009, 2010))
    assert path == cache / PREPARED
    assert path.read_text().splitlines()[0] == ",".join((*COLUMNS, LABEL))
    expected = np.concatenate([complete(0), complete(1)])
    found = read_columns(path, [*COLUMNS, LABEL])
    np.testing.assert_array_equal(found[:, :-1], expected[:, :-1])
    np.testing.assert_array_equal(found[:, -1], expected[:, -1] >= 10.0)
    assert len(power.requests) == 2
    assert not list((cache / "nasa_power" / "points").iterdir())


def test_the_request_is_what_the_service_documents(power: Server) -> None:
    prepare_nasa_power(places=TWO[:1], years=(2009, 2010))
    query = parse_qs(urlsplit(power.paths()[0]).query)
    assert query == {
        "parameters": [",".join((*COLUMNS, RAIN))],
        "community": ["AG"],
        "latitude": ["40.0"],
        "longitude": ["-100.0"],
        "start": ["20090101"],
        "end": ["20101231"],
        "format": ["JSON"],
    }


def test_the_defaults_are_nine_points_of_fifteen_years() -> None:
    assert len(set(PLACES)) == 9
    assert YEARS[1] - YEARS[0] + 1 == 15
    leaps = [year for year in range(YEARS[0], YEARS[1] + 1) if year % 4 == 0]
    assert 9 * (15 * 365 + len(leaps)) == 49_302


def test_the_same_choices_are_not_fetched_again(power: Server) -> None:
    prepare_nasa_power(places=TWO, years=(2009, 2010))
    prepare_nasa_power(places=TWO, years=(2009, 2010))
    assert len(power.requests) == 2
    power.say(SERVICE, answer_of(1))
    path = prepare_nasa_power(places=TWO, years=(2009, 2010), rain=1.0)
    assert len(power.requests) == 4
    assert read_columns(path, [LABEL]).mean() > 0.9
    prepare_nasa_power(places=TWO, years=(2009, 2010), rain=1.0, refresh=True)
    assert len(power.requests) == 6


def test_points_that_arrived_stay_after_an_interruption(
    power: Server, answer: type[Answer]
) -> None:
    power.say(SERVICE, answer_of(0), answer(status=400))
    with pytest.raises(DataNotFoundError, match="HTTP 400"):
        prepare_nasa_power(places=TWO, years=(2009, 2010))
    power.say(SERVICE, answer_of(1))
    path = prepare_nasa_power(places=TWO, years=(2009, 2010))
    assert len(power.requests) == 3
    expected = np.concatenate([complete(0), complete(1)])[:, :-1]
    np.testing.assert_array_equal(read_columns(path, COLUMNS), expected)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"properties": {}}'])
def test_another_answer_is_refused_and_forgotten(power: Server, body: bytes) -> None:
    power.say(SERVICE, body, answer_of(0))
    with pytest.raises(InvalidDataError, match=r"properties\.parameter"):
        prepare_nasa_power(places=TWO[:1], years=(2009, 2010))
    prepare_nasa_power(places=TWO[:1], years=(2009, 2010))


def test_only_a_bad_answer_is_fetched_again(power: Server) -> None:
    power.say(SERVICE, answer_of(0), b"<html>", answer_of(1))
    with pytest.raises(InvalidDataError, match=r"properties\.parameter"):
        prepare_nasa_power(places=TWO, years=(2009, 2010))
    path = prepare_nasa_power(places=TWO, years=(2009, 2010))
    assert ["39.5" in path for path in power.paths()] == [False, True, True]
    expected = np.concatenate([complete(0), complete(1)])[:, :-1]
    np.testing.assert_array_equal(read_columns(path, COLUMNS), expected)


def test_a_place_without_rain_values_is_refused_and_fetched_again(
    power: Server,
) -> None:
    void = json.loads(answer_of(1))
    series = void["properties"]["parameter"]
    series[RAIN] = dict.fromkeys(series[RAIN], -999.0)
    power.say(SERVICE, answer_of(0), json.dumps(void).encode(), answer_of(1))
    with pytest.raises(InvalidDataError, match=rf"39\.5.*all 40 days: {RAIN}\."):
        prepare_nasa_power(places=TWO, years=(2009, 2010))
    prepare_nasa_power(places=TWO, years=(2009, 2010))
    assert len(power.requests) == 3


def test_both_classes_are_needed(power: Server) -> None:
    with pytest.raises(InvalidProblemError, match="0 of 76 days have at least 99"):
        prepare_nasa_power(places=TWO, years=(2009, 2010), rain=99.0)
    # Another amount needs no other weather.
    path = prepare_nasa_power(places=TWO, years=(2009, 2010), rain=10.0)
    assert len(power.requests) == 2
    expected = np.concatenate([complete(0), complete(1)])[:, :-1]
    np.testing.assert_array_equal(read_columns(path, COLUMNS), expected)


def test_a_damaged_table_is_made_again(power: Server) -> None:
    path = prepare_nasa_power(places=TWO, years=(2009, 2010))
    path.write_text(path.read_text()[:-2])
    prepare_nasa_power(places=TWO, years=(2009, 2010))
    assert len(power.requests) == 4


def test_the_papers_table_of_the_users_own_is_enough(
    power: Server,
    folder: Path,
    cache: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "oneproj_paper.data")
    monkeypatch.setattr("oneproj_paper.data.power_tables.COUNTS", (1, 1))
    own = folder / ARTIFACT
    own.parent.mkdir()
    own.write_text(",".join((*COLUMNS, LABEL)) + "\n1,2,3,4,5,6,0\n1,2,3,4,5,6,1\n")
    assert prepare_nasa_power() == own
    assert "verified: nothing to do" in caplog.text
    assert power.requests == []
    # A choice is made as asked for, with a word about what loaders take.
    assert prepare_nasa_power(places=TWO) == cache / PREPARED
    assert f"Loaders take {own} instead" in caplog.text


def test_a_service_out_of_reach_is_told_with_the_other_ways(power: Server) -> None:
    power.shutdown()
    power.server_close()
    with pytest.raises(DataNotFoundError) as caught:
        prepare_nasa_power()
    message = str(caught.value)
    assert message.startswith(f"{power.url}{SERVICE} could not be fetched: ")
    for part in ("refused the connection", "Tried 3 times", ARTIFACT, PREPARED):
        assert part in message


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"places": []}, "at least one"),
        ({"places": [(91.0, 0.0)]}, r"\(91.0, 0.0\)"),
        ({"places": [(0.0, -181.0)]}, "latitudes and longitudes"),
        ({"places": [(0.0, 1.0)] * 2}, "each of them once"),
        ({"years": (1980, 1990)}, "from 1981 on"),
        ({"years": (2010, 2009)}, r"years=\(2010, 2009\)"),
        ({"rain": 0.0}, "rain=0.0"),
        ({"rain": float("nan")}, "rain=nan"),
    ],
)
def test_choices_that_make_no_sense_are_refused(
    choices: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        prepare_nasa_power(**choices)


def test_the_loader_takes_it_as_a_stand_in(power: Server) -> None:
    with pytest.raises(
        DataNotFoundError, match="oneproj-paper data prepare nasa_power"
    ):
        nasa_abstention()
    assert power.requests == []  # it never starts by itself
    prepare_nasa_power(places=TWO, years=(2009, 2010))
    splits = nasa_abstention()
    assert splits.stand_in
    parts = ("Stand-in", "76 days", "(39.5, -99.5)", "2009 to 2010", "10.0 mm")
    assert [part for part in parts if part not in splits.note] == []
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 76


def test_a_damaged_table_is_refused(power: Server) -> None:
    del power
    path = prepare_nasa_power(places=TWO, years=(2009, 2010))
    path.write_text(path.read_text().replace(",1\n", ",2\n"))
    with pytest.raises(InvalidDataError, match="--refresh"):
        nasa_abstention()
