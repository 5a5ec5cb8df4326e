"""The credit file from OpenML: a description and an ARFF file from a local server."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from oneproj_paper.data import credit_abstention, prepare_credit
from oneproj_paper.data.credit_source import COLUMNS, FILE, LABEL, read_credit
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

if TYPE_CHECKING:
    from tests.data.conftest import Answer, Server

WORKER = Path(__file__).with_name("credit_worker.py")
COUNTS = (360, 40)
DESCRIPTION = "/api/v1/json/data/45577"
ARFF = "/data/v1/download/22116576/Give-Me-Some-Credit.arff"


def table() -> np.ndarray:
    """Label and ten columns; some incomes are missing."""
    rng = np.random.default_rng(3)
    x = rng.gamma(2.0, 3.0, size=(sum(COUNTS), len(COLUMNS))).round(6)
    x[:, COLUMNS.index("age")] = rng.integers(21, 60, size=len(x))
    x[::8, COLUMNS.index("MonthlyIncome")] = np.nan
    return np.column_stack([np.arange(len(x)) % 10 == 0, x])


def arff(names: tuple[str, ...] = (LABEL, *COLUMNS)) -> bytes:
    lines = ["% a comment", "@RELATION Give-Me-Some-Credit", ""]
    lines += [f"@ATTRIBUTE {names[0]} {{0, 1}}"]
    lines += [f"@ATTRIBUTE '{name}' REAL" for name in names[1:]]
    lines += ["", "@DATA"]
    for label, *row in table().tolist():
        cells = ["?" if np.isnan(value) else repr(value) for value in row]
        lines.append(",".join([str(int(label)), *cells]))
    return ("\n".join(lines) + "\n").encode()


def description(url: str, body: bytes) -> bytes:
    entry = {
        "id": "45577",
        "name": "Give-Me-Some-Credit",
        "version": "1",
        "format": "ARFF",
        "url": url,
        "default_target_attribute": LABEL,
        "md5_checksum": hashlib.md5(body, usedforsecurity=False).hexdigest(),
    }
    return json.dumps({"data_set_description": entry}).encode()


@pytest.fixture
def openml(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    del folder
    monkeypatch.setattr("oneproj_paper.data.credit_source.OPENML", server.url)
    monkeypatch.setattr("oneproj_paper.data.credit_source.COUNTS", COUNTS)
    server.say(DESCRIPTION, description(server.url + ARFF, arff()))
    server.say(ARFF, arff())
    return server


def files(cache: Path) -> set[str]:
    return {p.name for p in (cache / "credit").glob("*")}


def test_the_download_is_kaggles_file(openml: Server, cache: Path) -> None:
    path = prepare_credit()
    assert path == cache / FILE
    np.testing.assert_array_equal(read_credit(path), table())
    assert path.read_text().splitlines()[0] == ",".join(["", LABEL, *COLUMNS])
    assert files(cache) == {"cs-training.csv", "cs-training.csv.sha256"}
    assert openml.paths() == [DESCRIPTION, ARFF]


def test_the_loader_downloads_what_is_missing(openml: Server) -> None:
    splits = credit_abstention()
    young = table()[table()[:, 1 + COLUMNS.index("age")] <= 36]
    parts = (splits.train, splits.validation, splits.test)
    assert sum(map(len, parts)) == len(young)
    assert openml.paths() == [DESCRIPTION, ARFF]
    credit_abstention()
    assert len(openml.requests) == 2  # from the cache


def test_offline_the_loader_names_the_command(
    openml: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEPROJ_OFFLINE", "1")
    with pytest.raises(DataNotFoundError) as caught:
        credit_abstention()
    assert "ONEPROJ_OFFLINE is set" in str(caught.value)
    assert "`oneproj-paper data prepare credit`" in str(caught.value)
    assert openml.requests == []


def test_a_download_that_fails_names_the_command_and_the_reason(
    openml: Server, answer: type[Answer]
) -> None:
    openml.say(DESCRIPTION, answer(status=500))
    with pytest.raises(DataNotFoundError) as caught:
        credit_abstention()
    for part in ("`oneproj-paper data prepare credit`", "HTTP 500", FILE):
        assert part in str(caught.value)


@pytest.mark.parametrize("refresh", [False, True])
def test_what_is_there_is_fetched_again_only_on_request(
    openml: Server, *, refresh: bool
) -> None:
    prepare_credit()
    prepare_credit(refresh=refresh)
    assert len(openml.requests) == (4 if refresh else 2)


def test_a_copy_of_the_users_own_is_verified_and_enough(
    openml: Server, folder: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oneproj_paper.data")
    own = folder / FILE
    own.parent.mkdir()
    own.write_bytes(prepare_credit().read_bytes())
    (cache / FILE).unlink()
    asked = len(openml.requests)
    caplog.clear()
    assert prepare_credit() == own
    assert caplog.messages == [
        f"{own} is already there, verified: nothing to do without refresh."
    ]
    assert len(openml.requests) == asked
    assert not (cache / FILE).exists()
    caplog.clear()
    assert prepare_credit(refresh=True) == cache / FILE
    assert (
        caplog.messages[-1] == f"Loaders take {own} instead, which ONEPROJ_DATA names."
    )


def test_a_wrong_copy_of_the_users_own_is_in_the_way(
    openml: Server, folder: Path
) -> None:
    own = folder / FILE
    own.parent.mkdir()
    lines = prepare_credit().read_text().splitlines()
    own.write_text("\n".join(lines[:-1]) + "\n")
    asked = len(openml.requests)
    with pytest.raises(InvalidDataError) as caught:
        prepare_credit()
    for part in (f"{own} holds 399 rows", "remove the file, or unset ONEPROJ_DATA"):
        assert part in str(caught.value)
    assert len(openml.requests) == asked


def test_the_cache_as_the_users_folder_is_the_cache(
    openml: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepare_credit()
    monkeypatch.setenv("ONEPROJ_DATA", str(cache))
    path.write_text("rubbish")
    prepare_credit()
    assert len(openml.requests) == 4
    np.testing.assert_array_equal(read_credit(path), table())


def test_a_damaged_file_in_the_cache_is_made_again(
    openml: Server, caplog: pytest.LogCaptureFixture
) -> None:
    path = prepare_credit()
    path.write_bytes(path.read_bytes()[:-5])
    caplog.clear()
    prepare_credit()
    assert len(openml.requests) == 4
    assert "It is made again now." in caplog.text
    np.testing.assert_array_equal(read_credit(path), table())


@pytest.mark.parametrize("offline", [False, True])
def test_a_source_out_of_reach_is_told_with_the_other_ways(
    openml: Server, monkeypatch: pytest.MonkeyPatch, *, offline: bool
) -> None:
    openml.shutdown()
    openml.server_close()
    if offline:
        monkeypatch.setenv("ONEPROJ_OFFLINE", "1")
    with pytest.raises(DataNotFoundError) as caught:
        prepare_credit()
    message = str(caught.value)
    ways = ("--file cs-training.csv", f"set ONEPROJ_DATA to a folder .* as {FILE}")
    for part in (f"{openml.url}{DESCRIPTION}", *ways):
        assert re.search(part, message)
    # What to set where there is no network is said unless it is set.
    assert ("ONEPROJ_OFFLINE=1 refuses at once" in message) is not offline
    assert ("ONEPROJ_OFFLINE is set" in message) is offline


def test_names_may_be_spelt_with_dots(openml: Server) -> None:
    body = arff((LABEL, *(name.replace("-", ".") for name in COLUMNS)))
    openml.say(DESCRIPTION, description(openml.url + ARFF, body))
    openml.say(ARFF, body)
    np.testing.assert_array_equal(read_credit(prepare_credit()), table())


def test_another_file_than_described_is_refused(openml: Server, cache: Path) -> None:
    openml.say(ARFF, arff() + b"0,1,1,1,1,1,1,1,1,1,1\n")
    with pytest.raises(InvalidDataError, match=r"MD5 hash .* does not match"):
        prepare_credit()
    assert files(cache) == set()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (arff().replace(b"MonthlyIncome", b"Income"), "no attribute MonthlyIncome"),
        (b"\n".join(arff().splitlines()[:-1]) + b"\n", "holds 399 rows"),
        (b"<html>maintenance</html>", "not an ARFF file"),
    ],
    ids=["column", "rows", "page"],
)
def test_a_changed_file_never_gets_the_name(
    openml: Server, cache: Path, body: bytes, message: str
) -> None:
    openml.say(DESCRIPTION, description(openml.url + ARFF, body))
    openml.say(ARFF, body)
    with pytest.raises(InvalidDataError, match=message):
        prepare_credit()
    assert "cs-training.csv" not in files(cache)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data_set_description": {}}'])
def test_a_description_that_is_none_names_the_other_way(
    openml: Server, body: bytes
) -> None:
    openml.say(DESCRIPTION, body)
    with pytest.raises(InvalidDataError, match=r"--file cs-training\.csv"):
        prepare_credit()


def test_the_users_own_file_is_checked_and_copied(
    openml: Server, cache: Path, tmp_path: Path
) -> None:
    own = tmp_path / "download.csv"
    own.write_bytes(prepare_credit().read_bytes())
    (cache / FILE).unlink()
    asked = len(openml.requests)
    assert prepare_credit(file=own) == cache / FILE
    assert len(openml.requests) == asked
    own.write_text("\n".join(own.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(InvalidDataError, match=rf"^{own} holds 399 rows"):
        prepare_credit(file=own)
    np.testing.assert_array_equal(read_credit(cache / FILE), table())


# --- other processes ----------------------------------------------------------


def start(server: Server) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), server.url, *map(str, COUNTS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )


def test_two_processes_download_once(
    openml: Server, answer: type[Answer], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneproj_paper.data.fetch.READ_TIMEOUT", 60.0)
    openml.say(ARFF, answer(arff(), cut=1_000, hangs=True))
    worker = start(openml)
    assert openml.silent.wait(60)  # it is in the middle of the transfer
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(prepare_credit)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.3)  # waits for the first, and asks for nothing
        openml.go_on.set()
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors
        assert second.result(timeout=60) == cache / FILE
    assert openml.paths() == [DESCRIPTION, ARFF]
    np.testing.assert_array_equal(read_credit(cache / FILE), table())
    assert files(cache) == {"cs-training.csv", "cs-training.csv.sha256"}


@pytest.mark.skipif(os.name == "nt", reason="these are POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_leaves_no_half_of_a_file(
    openml: Server, answer: type[Answer], cache: Path, number: signal.Signals
) -> None:
    openml.say(ARFF, answer(arff(), cut=len(arff()) // 2, hangs=True))
    worker = start(openml)
    assert openml.silent.wait(60)
    deadline = time.monotonic() + 60
    while not files(cache):  # the transfer has begun
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker.send_signal(number)
    _, errors = worker.communicate(timeout=60)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
        assert files(cache) == set()
    assert not (cache / FILE).exists()
    openml.say(ARFF, arff())
    np.testing.assert_array_equal(read_credit(prepare_credit()), table())
    assert files(cache) == {"cs-training.csv", "cs-training.csv.sha256"}
