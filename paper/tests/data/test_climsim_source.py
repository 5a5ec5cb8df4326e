"""The table of eight locations: made from a local copy of the hub, piece by piece."""

from __future__ import annotations

import hashlib
import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pytest
import torch

from oneproj.errors import InvalidProblemError
from oneproj_paper.data import (
    climsim_abstention,
    climsim_groups,
    climsim_transfer,
    prepare_climsim,
)
from oneproj_paper.data.climsim_files import NORM, read_norm
from oneproj_paper.data.climsim_hub import NORM_DIGESTS, Arrays, month_times
from oneproj_paper.data.climsim_labels import Sizes
from oneproj_paper.data.climsim_rows import daily, read_rows
from oneproj_paper.data.climsim_source import TABLE
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

if TYPE_CHECKING:
    from tests.data.conftest import Answer, Server

COLUMNS, LEVELS = 384, 60
PARTS = {"train": Arrays(10_201, 30), "val": Arrays(80_201, 11)}
HUB = "/datasets/LEAP/subsampled_low_res/resolve/main"
RAW = "/datasets/LEAP/ClimSim_low-res/resolve/main/train"
CODE = "/preprocessing/normalizations/inputs"
PROFILES = ("state_t", "state_q0001")
SCALARS = ("state_ps", "pbuf_SOLIN", "pbuf_LHFLX", "pbuf_SHFLX")


def array(part: str, kind: str, *, steps: int | None = None) -> np.ndarray:
    rng = np.random.default_rng([len(part), len(kind)])
    n = (steps or PARTS[part].steps) * COLUMNS
    if kind == "input":
        return rng.normal(size=(n, 124)).astype(np.float32)
    rain = rng.gamma(1.0, size=(n, 128)) * (rng.random((n, 1)) < 0.5)
    return rain.astype(np.float32)


def npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def netcdf(path: Path, variables: dict[str, Any], form: str) -> bytes:
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("lev", LEVELS)
        file.createDimension("ncol", COLUMNS)
        sizes = {LEVELS: "lev", COLUMNS: "ncol"}
        for name, values in variables.items():
            array = np.asarray(values)
            kind = "i4" if array.dtype.kind == "i" else "f8"
            file.createVariable(name, kind, [sizes[n] for n in array.shape])[...] = (
                array
            )
    return path.read_bytes()


@pytest.fixture
def hub(
    server: Server,
    answer: type[Answer],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Server:
    del folder
    monkeypatch.setenv("HF_ENDPOINT", server.url + "/")
    monkeypatch.setenv("ONEPROJ_ALLOW_HTTP", "1")
    monkeypatch.setattr("oneproj_paper.data.climsim_hub.CODE", server.url)
    monkeypatch.setattr("oneproj_paper.data.climsim_hub.ARRAYS", PARTS)
    for k, name in enumerate(NORM):
        values = {n: np.full(LEVELS, 1.0 + k) for n in PROFILES}
        scalars = {n: np.float64(2.0 * k) for n in SCALARS}
        body = netcdf(tmp_path / name, values | scalars, "NETCDF4")
        server.say(f"{CODE}/{name}", body)
        fingerprint = hashlib.sha256(read_norm(tmp_path / name).tobytes()).hexdigest()
        monkeypatch.setitem(NORM_DIGESTS, name, fingerprint)
    for part in PARTS:
        for kind in ("input", "target"):
            body = npy(array(part, kind))
            serve(server, answer, f"{part}_{kind}.npy", body)
    return server


def serve(
    server: Server, answer: type[Answer], file: str, body: bytes, cut: int | None = None
) -> None:
    """As the hub does: a redirect with the SHA-256, then the content."""
    digest = hashlib.sha256(body).hexdigest()
    headers = {"Location": f"/cdn/{file}", "X-Linked-ETag": f'"{digest}"'}
    server.say(f"{HUB}/{file}", answer(status=302, headers=headers))
    server.say(f"/cdn/{file}", answer(body, headers={"ETag": f'"{digest}"'}, cut=cut))


def content(server: Server) -> list[str]:
    """The large files that were sent, in order."""
    return [path.removeprefix("/cdn/") for path in server.paths() if "/cdn/" in path]


def test_the_table_holds_eight_locations_of_both_parts(
    hub: Server, cache: Path
) -> None:
    path = prepare_climsim()
    assert path == cache / TABLE
    rows = read_rows(path)
    assert len(rows.rain) == (30 + 11) * 8
    assert rows.location.tolist() == [*range(104, 112)] * 41
    assert rows.time[0] == 1_020_100_000
    assert rows.time[30 * 8] == 8_020_100_000
    raw, rain = array("val", "input"), array("val", "target")
    row, k = 4 * COLUMNS + 109, (30 + 4) * 8 + 5
    expected = raw[row].astype(float)
    expected[:120] = expected[:120] * (2.0 - 3.0) + 1.0  # max - min, mean
    expected[120:] = expected[120:] * (2.0 - 4.0) + 0.0
    np.testing.assert_allclose(rows.x[k], expected, rtol=1e-6)
    assert rows.rain[k] == float(rain[row, 123]) / 1_313_280
    assert len(hub.requests) == 3 + 2 * 4


def test_only_the_table_and_the_normalisation_stay(hub: Server, cache: Path) -> None:
    del hub
    prepare_climsim()
    left = {p.relative_to(cache).as_posix() for p in cache.rglob("*") if p.is_file()}
    norm = {f"climsim/norm/{name}" for name in NORM}
    kept = {TABLE, f"{TABLE}.sha256", f"{TABLE}.json", ".climsim.lock"}
    assert left == kept | norm


def test_the_same_choices_are_not_fetched_again(hub: Server) -> None:
    prepare_climsim(parts=["val"])
    prepare_climsim(parts=["val"])
    assert content(hub) == ["val_input.npy", "val_target.npy"]
    path = prepare_climsim()
    assert len(content(hub)) == 6
    assert len(read_rows(path).rain) == 41 * 8


def test_an_interruption_costs_only_what_was_not_done(
    hub: Server, answer: type[Answer], cache: Path
) -> None:
    body = npy(array("val", "target"))
    serve(hub, answer, "val_target.npy", body, cut=len(body) // 2)
    hub.answers["/cdn/val_target.npy"].append(answer(status=503))
    with pytest.raises(DataNotFoundError, match="HTTP 503"):
        prepare_climsim()
    assert not (cache / TABLE).exists()
    done = len(content(hub))
    serve(hub, answer, "val_target.npy", body)
    assert len(read_rows(prepare_climsim()).rain) == 41 * 8
    # The first part is not asked for again, nor the input of the second.
    assert content(hub)[done:] == ["val_target.npy"]


def test_a_hub_that_has_changed_is_noticed(
    hub: Server, answer: type[Answer], cache: Path
) -> None:
    serve(hub, answer, "train_input.npy", npy(array("train", "input", steps=31)))
    with pytest.raises(
        InvalidDataError, match="holds 11,904 rows, expected are 11,520"
    ):
        prepare_climsim()
    assert not (cache / TABLE).exists()


def test_a_complete_array_of_the_users_own_is_used(hub: Server, folder: Path) -> None:
    own = folder / "climsim" / "subsampled"
    own.mkdir(parents=True)
    np.save(own / "val_input.npy", array("val", "input"))
    np.save(own / "val_target.npy", array("val", "target", steps=2))  # an excerpt
    prepare_climsim(parts=["val"])
    assert content(hub) == ["val_target.npy"]
    assert len(list(own.iterdir())) == 2  # and left where it is


def test_a_folder_of_the_users_own_may_lie_in_the_cache(
    hub: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cache / "mine"
    arrays = own / "climsim" / "subsampled"
    arrays.mkdir(parents=True)
    for kind in ("input", "target"):
        np.save(arrays / f"val_{kind}.npy", array("val", kind))
    monkeypatch.setenv("ONEPROJ_DATA", str(own))
    prepare_climsim(parts=["val"])
    assert content(hub) == []
    kept = {"val_input.npy", "val_target.npy"}
    assert {path.name for path in arrays.iterdir()} == kept


def test_a_table_of_the_users_own_is_enough(
    hub: Server, folder: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oneproj_paper.data")
    own = folder / TABLE
    own.parent.mkdir()
    prepare_climsim().rename(own)
    asked = len(hub.requests)
    assert prepare_climsim() == own
    assert f"{own} is already there, verified" in caplog.text
    assert len(hub.requests) == asked
    assert prepare_climsim(parts=["val"]) == cache / TABLE
    assert f"Loaders take {own} instead" in caplog.text
    own.write_bytes(own.read_bytes()[:-100])
    with pytest.raises(InvalidDataError, match="unset ONEPROJ_DATA"):
        prepare_climsim()


def test_a_damaged_table_is_made_again(hub: Server) -> None:
    path = prepare_climsim(parts=["val"])
    path.write_bytes(path.read_bytes()[:-100])
    prepare_climsim(parts=["val"])
    assert content(hub) == 2 * ["val_input.npy", "val_target.npy"]
    assert len(read_rows(path).rain) == 11 * 8


@pytest.mark.parametrize("allowed", [None, "", "0", "yes"])
def test_a_mirror_without_https_is_refused_unless_the_user_says_so(
    hub: Server, monkeypatch: pytest.MonkeyPatch, allowed: str | None
) -> None:
    monkeypatch.delenv("ONEPROJ_ALLOW_HTTP")
    if allowed is not None:
        monkeypatch.setenv("ONEPROJ_ALLOW_HTTP", allowed)
    with pytest.raises(InvalidProblemError, match=r"https://.*set ONEPROJ_ALLOW_HTTP"):
        prepare_climsim(parts=["val"])
    assert content(hub) == []


@pytest.mark.parametrize("address", ["ftp://mirror", "file:///srv/hub", "mirror.org"])
def test_a_mirror_is_never_anything_but_a_server_of_the_web(
    hub: Server, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(InvalidProblemError, match="does not begin with https://"):
        prepare_climsim(parts=["val"])
    assert content(hub) == []


def test_a_hub_out_of_reach_is_told_with_the_other_ways(hub: Server) -> None:
    hub.shutdown()
    hub.server_close()
    with pytest.raises(DataNotFoundError) as caught:
        prepare_climsim()
    ways = ("HF_ENDPOINT", TABLE, "climsim/subsampled/{train,val}_{input,target}.npy")
    for part in ("refused the connection", "Tried 3 times", *ways):
        assert part in str(caught.value)


# --- the normalisation, whose address is not pinned ---------------------------


def test_another_normalisation_is_refused_and_forgotten(
    hub: Server, cache: Path
) -> None:
    good = hub.answers[f"{CODE}/{NORM[1]}"]
    wrong = hub.answers[f"{CODE}/{NORM[2]}"][0].body
    hub.say(f"{CODE}/{NORM[1]}", wrong)
    with pytest.raises(InvalidDataError, match=r"input_max\.nc does not hold the val"):
        prepare_climsim(parts=["val"])
    hub.say(f"{CODE}/{NORM[1]}", b"<html>")
    with pytest.raises(InvalidDataError, match="could not be read as netCDF"):
        prepare_climsim(parts=["val"])
    assert not (cache / "climsim" / "norm" / NORM[1]).exists()
    hub.answers[f"{CODE}/{NORM[1]}"] = good
    prepare_climsim(parts=["val"])


def test_a_wrong_normalisation_of_the_users_own_stays_where_it_is(
    hub: Server, folder: Path
) -> None:
    own = folder / "climsim" / "norm" / NORM[0]
    own.parent.mkdir(parents=True)
    own.write_bytes(hub.answers[f"{CODE}/{NORM[1]}"][0].body)
    with pytest.raises(InvalidDataError, match="units would come out wrong"):
        prepare_climsim(parts=["val"])
    assert own.is_file()


def test_the_digests_are_those_of_the_real_files(real_data: Path) -> None:
    for name in NORM:
        values = read_norm(real_data / "climsim" / "norm" / name).astype("<f8")
        assert hashlib.sha256(values.tobytes()).hexdigest() == NORM_DIGESTS[name]


# --- netCDF -------------------------------------------------------------------


def test_a_file_that_is_no_netcdf_is_not_in_the_way(hub: Server, cache: Path) -> None:
    date = "0001-02-01-00000"
    for kind in ("mli", "mlo"):
        hub.say(f"{RAW}/0001-02/E3SM-MMF.{kind}.{date}.nc", b"<html>")
    with pytest.raises(InvalidDataError, match="could not be read as netCDF"):
        prepare_climsim(months=("0001-02", "0001-02"))
    assert not list((cache / "climsim" / "raw").iterdir())


def pair(path: Path, time: int) -> tuple[bytes, bytes]:
    rng = np.random.default_rng(time)
    clock = {"ymd": np.int32(time // 100_000), "tod": np.int32(time % 100_000)}
    state = {n: rng.gamma(9.0, 30.0, size=(LEVELS, COLUMNS)) for n in PROFILES}
    state |= {n: rng.normal(size=COLUMNS) for n in SCALARS}
    rain = {"cam_out_PRECC": rng.gamma(1.0, 1e-8, size=COLUMNS)}
    form = "NETCDF3_64BIT_DATA"
    return netcdf(path, clock | state, form), netcdf(path, clock | rain, form)


def test_netcdf_files_of_some_months_make_the_table(
    hub: Server, tmp_path: Path, cache: Path
) -> None:
    times = [*month_times("0001-02", 1_000), *month_times("0001-03", 1_000)]
    assert [t // 100_000 for t in times] == [10_201, 10_214, 10_228, 10_314, 10_328]
    for time in times:
        date, second = divmod(time, 100_000)
        month = f"0001-{date // 100 % 100:02}"
        for kind, body in zip(("mli", "mlo"), pair(tmp_path / "x", time), strict=True):
            name = f"E3SM-MMF.{kind}.{month}-{date % 100:02}-{second:05}.nc"
            hub.say(f"{RAW}/{month}/{name}", body)
    rows = read_rows(prepare_climsim(months=("0001-02", "0001-03"), every=1_000))
    assert rows.time.tolist() == np.repeat(times, 8).tolist()
    assert rows.location.tolist() == [*range(104, 112)] * 5
    (tmp_path / "x").write_bytes(pair(tmp_path / "x", times[3])[1])
    with netCDF4.Dataset(tmp_path / "x") as file:
        expected = file["cam_out_PRECC"][104:112]
    np.testing.assert_array_equal(rows.rain[24:32], expected)
    assert not list((cache / "climsim" / "raw").iterdir())


def test_steps_of_months_are_those_of_the_whole() -> None:
    months = [f"0001-{m:02}" for m in range(2, 13)] + ["0002-01"]
    times = [time for month in months for time in month_times(month, 7)]
    assert len(times) == -(-365 * 72 // 7)
    assert times == sorted(set(times))
    assert times[1] - times[0] == 7 * 1_200


@pytest.mark.parametrize(
    "choices",
    [
        {"parts": []},
        {"parts": ["scoring"]},
        {"parts": ["val", "val"]},
        {"months": ("0001-03", "0001-02")},
        {"months": ("0001-01", "0001-02")},
        {"months": ("0001-02", "0009-02")},
        {"months": ("1-2", "0001-03")},
        {"months": ("0001-02", "0001-02"), "every": 0},
    ],
    ids=str,
)
def test_choices_that_make_no_sense_are_refused(choices: dict[str, Any]) -> None:
    name = next(iter(choices))
    with pytest.raises(InvalidProblemError, match=f"{name}="):
        prepare_climsim(**choices)


# --- what the loaders make of it ----------------------------------------------


@pytest.fixture
def table(hub: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    del hub
    monkeypatch.setattr(climsim_groups, "SIZES", Sizes(9, 8, 2, 2))
    monkeypatch.setattr("oneproj_paper.data.climsim_labels.HEAVY", 0.6)
    # 30 steps of 400 minutes reach into a ninth day.
    monkeypatch.setattr("oneproj_paper.data.climsim_files.STRIDE", 20)
    return prepare_climsim(parts=["train"])


def test_abstention_takes_daily_means_of_group_26(table: Path) -> None:
    rows = read_rows(table)
    days = daily(rows.where((rows.location >= 104) & (rows.location <= 107)))
    assert len(days.rain) == 9 * 4
    splits = climsim_abstention(dtype=torch.float64)
    # 60 % of nine days are the first six, 80 % the first eight.
    wet = days.rain > 0
    first = days.time < np.unique(days.time)[6]
    threshold = np.quantile(days.rain[first & wet], 0.6)
    assert splits.train.y.tolist() == (days.rain[first & wet] > threshold).tolist()
    x = np.hstack([days.x, days.x**2])
    mean, scale = x[first & wet].mean(0), x[first & wet].std(0)
    assert splits.validation.x.shape[0] == int((~first & wet)[:-4].sum())
    held_out = torch.cat([splits.validation.x, splits.test.x])
    expected = ((x - mean) / scale)[~first & wet]
    np.testing.assert_allclose(held_out, expected, rtol=1e-6, atol=1e-6)


def test_abstention_says_that_the_counts_are_not_the_papers(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = climsim_abstention()
    assert splits.stand_in
    assert "the paper has 11,373" in splits.note
    sample = climsim_groups.daily_rain(read_rows(table))
    ones = int(sample.y[torch.cat(sample.parts)].sum())
    sizes = tuple(map(len, sample.parts))
    monkeypatch.setattr(climsim_groups, "PARTS", sizes)
    monkeypatch.setattr(climsim_groups, "CLASSES", (sum(sizes) - ones, ones))
    splits = climsim_abstention()
    assert not splits.stand_in
    assert splits.note.startswith("The paper's counts exactly.")


@pytest.mark.usefixtures("table")
def test_transfer_takes_time_steps_of_both_groups() -> None:
    splits = climsim_transfer(seed=1)
    assert splits.source.counts == (9, 9)
    assert splits.train.counts == (8, 8)
    assert splits.validation.counts == splits.test.counts == (2, 2)
    assert splits.stand_in
    assert "104 to 107 target, 108 to 111 source" in splits.note


def test_transfer_regions_do_not_mix(table: Path) -> None:
    rows = read_rows(table)
    regions = climsim_groups.rain_of_groups(rows)
    assert set(rows.location[regions.source].tolist()) == {108, 109, 110, 111}
    assert set(rows.location[~regions.source].tolist()) == {104, 105, 106, 107}
    taken = torch.cat(regions.parts).numpy()
    assert bool((rows.rain[taken] > 0).all())
    assert len(taken) == int((rows.rain > 0).sum())
    ends = [rows.time[part.numpy()] for part in regions.parts]
    assert ends[0].max() < ends[1].min() <= ends[1].max() < ends[2].min()


@pytest.mark.usefixtures("hub")
def test_periods_without_rows_name_the_command() -> None:
    prepare_climsim(parts=["val"])  # a day and a half
    with pytest.raises(
        InvalidDataError, match=r"too few .*`oneproj-paper data prepare"
    ):
        climsim_abstention()


def test_too_short_a_time_names_the_command(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del table
    monkeypatch.setattr(climsim_groups, "SIZES", Sizes(950, 100, 200, 400))
    with pytest.raises(InvalidDataError, match="oneproj-paper data prepare climsim"):
        climsim_transfer()


def test_another_table_is_refused(table: Path) -> None:
    rows = read_rows(table)
    with table.open("wb") as file:
        np.savez(
            file,
            X=rows.x,
            precc=rows.rain,
            location=rows.location - 1,
            ymd=rows.time // 100_000,
            tod=rows.time % 100_000,
            feature_names=np.array(rows.names),
        )
    with pytest.raises(InvalidDataError, match="locations 104 to 111"):
        climsim_abstention()
