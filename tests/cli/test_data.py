"""`oneproj data`: what it shows, what it prepares, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneproj.cli import app
from oneproj.data import power_source
from oneproj.data.climsim_files import STRIDE
from oneproj.data.climsim_hub import ARRAYS
from oneproj.data.credit_source import COLUMNS, FILE, LABEL

ROW = "1,{}" + ",1" * len(COLUMNS)
CREDIT = "\n".join([",".join(["", LABEL, *COLUMNS]), ROW.format(0), ROW.format(1), ""])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("oneproj.data.credit_source.COUNTS", (1, 1))
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
        assert f"oneproj data prepare {name}" in output
    assert "transfer-climsim" in output
    assert output.count("missing") == 3


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


def test_damage_is_exit_code_1(own: Path, cache: Path) -> None:
    run("prepare", "credit", "--file", str(own))
    (cache / FILE).write_text(CREDIT[:-5])
    code, output = run("verify", "credit")
    assert code == 1
    assert "DAMAGED" in output
    assert str(cache / FILE) in output


def test_verifying_what_is_not_here_fails_only_if_it_was_named() -> None:
    assert run("verify")[0] == 0
    code, output = run("verify", "climsim")
    assert code == 1
    assert "oneproj data prepare climsim" in output


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
        monkeypatch.setattr(f"oneproj.data.{name}", record)
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


def test_a_place_that_is_none_is_named() -> None:
    code, output = run("prepare", "nasa_power", "--place", "here")
    assert code == 2
    assert "'here' is not LATITUDE,LONGITUDE" in output


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oneproj.data.prepare_climsim", full)
    code, output = run("prepare", "climsim")
    assert code == 1
    assert "No space left on device" in output
    assert "ONEPROJ_CACHE" in output


def test_ctrl_c_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("oneproj.data.prepare_climsim", interrupted)
    code, output = run("prepare", "climsim")
    assert code == 130
    assert "the same command continues" in output
