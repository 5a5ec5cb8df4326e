"""`oneproj-paper data`: what it shows, what it prepares, and its exit codes."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneproj_paper.cli import app
from oneproj_paper.data import catalogue, power_source
from oneproj_paper.data.climsim_files import STRIDE
from oneproj_paper.data.climsim_hub import ARRAYS
from oneproj_paper.data.credit_source import COLUMNS, FILE, LABEL

ROW = "1,{}" + ",1" * len(COLUMNS)
CREDIT = "\n".join([",".join(["", LABEL, *COLUMNS]), ROW.format(0), ROW.format(1), ""])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("oneproj_paper.data.credit_source.COUNTS", (1, 1))
    monkeypatch.delenv("ONEPROJ_DATA", raising=False)
    monkeypatch.setenv("ONEPROJ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "cs-training.csv"
    path.write_text(CREDIT)
    return path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["data", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_list_shows_every_data_set_and_how_to_get_it() -> None:
    code, output = run("list")
    assert code == 0
    for name in ("credit", "nasa_power", "climsim"):
        assert f"oneproj-paper data prepare {name}" in output
    assert "transfer-climsim" in output
    assert output.count("missing") == 3


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_and_breaks_no_path(
    own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    run("prepare", "credit", "--file", str(own))
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = CliRunner().invoke(app, ["data", "list"]).output.splitlines()
    assert f"  where      {cache / FILE}" in lines
    assert f"Looked in: {cache}" in lines
    assert [line for line in lines if len(line) > 80 and str(cache) not in line] == []
    for entry in catalogue():
        begin = lines.index(f"{entry.name}: {entry.status.value}")
        facts = lines[begin + 1 : lines.index("", begin)]
        assert f"  needed by  {', '.join(entry.experiments)}" in facts
        assert all(fact.startswith("  ") for fact in facts)


def test_the_users_own_file_is_prepared_listed_and_verified(
    own: Path, cache: Path
) -> None:
    code, output = run("prepare", "credit", "--file", str(own))
    assert (code, output) == (0, f"Ready: {cache / FILE}")
    code, output = run("list")
    assert "ready" in output
    assert output.count("missing") == 2
    code, output = run("verify")
    assert (code, output) == (0, f"ok {cache / FILE}")


def test_a_copy_under_the_users_folder_is_enough(
    own: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEPROJ_DATA", str(tmp_path))
    (tmp_path / "credit").mkdir()
    copy = own.rename(tmp_path / FILE)
    code, output = run("prepare", "credit")
    assert code == 0
    assert f"{copy} is already there, verified: nothing to do" in output
    assert f"Ready: {copy}" in output
    assert not (cache / FILE).exists()
    copy.write_text(CREDIT[:-30])
    code, output = run("prepare", "credit")
    assert code == 1
    assert "loaders look there first" in output
    assert "unset ONEPROJ_DATA" in output


@pytest.mark.parametrize(
    "command", [["list"], ["verify"], ["prepare", "credit"], ["prepare", "climsim"]]
)
def test_a_users_folder_that_is_none_is_a_sentence(
    own: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("ONEPROJ_DATA", str(own))
    code, output = run(*command)
    assert code == 1
    assert "ONEPROJ_DATA should name a folder" in output
    assert "is a file" in output


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("credit", "credit_source.OPENML"),
        ("nasa_power", "power_source.POWER"),
        ("climsim", "climsim_hub.CODE"),
    ],
)
def test_without_a_network_it_says_what_it_tries_and_what_to_do(
    name: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONEPROJ_OFFLINE")
    with socket.socket() as taken:  # a port that nobody listens at
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(f"oneproj_paper.data.{source}", url)
        monkeypatch.setattr("oneproj_paper.data.fetch.RETRIES", 1)
        result = CliRunner().invoke(app, ["data", "prepare", name])
    assert result.exit_code == 1
    assert f"Trying {url}" in result.stderr
    words = " ".join(result.stderr.split())
    for k in (1, 2):
        assert f"refused the connection (attempt {k} of 2)." in words
    assert re.search(r"refused the connection\. Tried 2 times in \d+ s\.", words)
    for part in ("Other ways: ", "set ONEPROJ_DATA to a folder", "ONEPROJ_OFFLINE=1"):
        assert part in words


def test_damage_is_exit_code_1(own: Path, cache: Path) -> None:
    run("prepare", "credit", "--file", str(own))
    (cache / FILE).write_text(CREDIT[:-5])
    code, output = run("verify", "credit")
    assert code == 1
    assert "DAMAGED" in output
    assert str(cache / FILE) in output


def test_verifying_what_is_not_here_fails_only_if_it_was_named(cache: Path) -> None:
    assert run("verify")[0] == 0
    code, output = run("verify", "climsim")
    assert code == 1
    assert output.startswith(f"No file to check in {cache}. ")
    assert "oneproj-paper data prepare climsim" in output


def test_a_wrong_name_is_a_sentence() -> None:
    code, output = run("verify", "weather")
    assert code == 1
    assert "There is no data set 'weather'" in output


@pytest.mark.parametrize("name", ["credit", "nasa_power", "climsim", "all"])
def test_offline_every_download_is_refused_in_words(name: str) -> None:
    code, output = run("prepare", name)
    assert code == 1
    assert "ONEPROJ_OFFLINE is set" in output


def test_options_reach_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []

    def record(**choices: object) -> Path:
        seen.append(choices)
        return Path("there")

    for name in ("prepare_nasa_power", "prepare_climsim"):
        monkeypatch.setattr(f"oneproj_paper.data.{name}", record)
    run("prepare", "nasa_power", "--place", "1,-2", "--place", "3.5,4", "--rain", "5")
    run("prepare", "nasa_power")
    run("prepare", "climsim", "--part", "val", "--refresh")
    run("prepare", "climsim", "--first-month", "0001-02", "--every", "3")
    run("prepare", "climsim")
    years, rain = power_source.YEARS, power_source.HEAVY
    nasa = {"years": years, "refresh": False}
    climsim = {"months": None, "every": STRIDE, "refresh": False}
    parts = tuple(ARRAYS)
    assert seen == [
        nasa | {"places": [(1.0, -2.0), (3.5, 4.0)], "rain": 5.0},
        nasa | {"places": power_source.PLACES, "rain": rain},
        climsim | {"parts": ["val"], "refresh": True},
        climsim | {"parts": parts, "months": ("0001-02", "0001-02"), "every": 3},
        climsim | {"parts": parts},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--last-month", "0001-03"], "--last-month and --every need --first-month"),
        (["--every", "3"], "--last-month and --every need --first-month"),
        (["--first-month", "0001-02", "--part", "val"], "leave it out with --first"),
    ],
    ids=["last month", "every", "part"],
)
def test_options_that_exclude_each_other_are_refused(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneproj_paper.data.prepare_climsim", pytest.fail)
    code, output = run("prepare", "climsim", *options)
    assert code == 2
    assert message in output


@pytest.mark.parametrize("month", ["0001-01", "0009-02", "2001-02", "February"])
def test_a_month_that_is_none_is_a_sentence(month: str) -> None:
    code, output = run("prepare", "climsim", "--first-month", month)
    assert code == 1
    assert "a first and a last month from 0001-02 to 0009-01" in output


def test_a_wrong_name_shows_the_right_ones() -> None:
    code, output = run("prepare", "weather")
    assert code == 2
    assert "credit|nasa_power|climsim|all" in output


def test_a_place_that_is_none_is_named() -> None:
    code, output = run("prepare", "nasa_power", "--place", "here")
    assert code == 2
    assert "'here' is not LATITUDE,LONGITUDE" in output


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oneproj_paper.data.prepare_climsim", full)
    code, output = run("prepare", "climsim")
    assert code == 1
    assert "No space left on device" in output
    assert "ONEPROJ_CACHE" in output


def test_a_cache_that_is_a_file_is_a_sentence(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEPROJ_CACHE", str(own))
    code, output = run("prepare", "credit")
    assert code == 1
    assert output.startswith(
        f"File exists: {own}. The cache, {own}, has to be a folder"
    )


def test_ctrl_c_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("oneproj_paper.data.prepare_climsim", interrupted)
    code, output = run("prepare", "climsim")
    assert code == 130
    assert "the same command continues" in output
