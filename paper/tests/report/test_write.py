"""The page and its files: whole, repeatable, and clear about what is not there."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from rich.console import Console
from typer.testing import CliRunner

from oneproj.errors import OneprojError
from oneproj_paper.cli import app
from oneproj_paper.cli.tables import show
from oneproj_paper.errors import RecordError
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.records import write_record
from oneproj_paper.report import figures
from oneproj_paper.report.summary import summary
from oneproj_paper.report.write import Report, write_report

Make = Callable[..., Record]
VOID = {"meta", "link", "br", "use", "path", "rect", "circle"}


class Page(HTMLParser):
    """The elements of a page, and whether each is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module", name="page")
def fixture_page(written: Report) -> Page:
    return Page(written.page.read_text("utf-8"))


def test_page_is_well_formed_and_accessible(page: Page) -> None:
    assert page.open == []
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("title")) == 1
    assert len(page.all("h1")) == 1
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(attrs.get("scope") in {"col", "row"} for attrs in page.all("th"))
    pictures = [a for a in page.all("div") if a.get("class") == "panel"]
    assert len(pictures) == 20
    assert all(a["role"] == "img" and a["aria-label"] for a in pictures)
    named = [
        a["aria-labelledby"] for a in page.all("section") if "aria-labelledby" in a
    ]
    assert set(named) <= set(ids)


def test_links_lead_somewhere_and_nothing_is_fetched(
    page: Page, written: Report
) -> None:
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    for attrs in page.all("a") + page.all("use"):
        target = str(attrs.get("href"))
        if target.startswith("#"):
            assert target[1:] in ids
        else:
            assert (written.page.parent / target).is_file()
    text = written.page.read_text("utf-8")
    assert not re.search(r"https?://", text)
    assert not re.search(r"@import|url\((?!#)", text)
    assert page.all("script") == page.all("img") == page.all("iframe") == []
    for used in re.findall(r"url\(#([^)]*)\)", text):
        assert used in ids


def test_every_figure_and_table_is_a_file_too(page: Page, written: Report) -> None:
    drawn = {f.name for f in (written.files / "figures").iterdir()}
    stems = {name.partition(".")[0] for name in drawn}
    assert len(stems) == 7
    assert drawn == {f"{stem}.{s}" for stem in stems for s in ("svg", "png", "pdf")}
    tables = {f.name for f in (written.files / "tables").iterdir()}
    assert len(tables) == 2 * 8
    linked = {str(a.get("href")).rpartition("/")[2] for a in page.all("a")}
    assert drawn | tables <= linked


def test_page_says_what_a_reader_must_know(page: Page) -> None:
    text = page.text
    assert "24 runs of 3 experiments." in text
    assert "Stand-in data: not judged against the paper." in text
    assert "Extrapolated from 50 of 500 updates" in text
    assert "There are no records for this figure." in text
    assert "oneproj-paper reproduce abstention-credit --preset paper --seeds 10" in text
    assert "10.00 \N{PLUS-MINUS SIGN} 0.81" in text  # the paper's first number
    assert "Not run: abstention-gaussian, abstention-climsim, abstention-credit" in text
    assert "The runs differ in" not in text


def test_long_lists_of_commands_are_folded_and_short_ones_are_not(page: Page) -> None:
    folded = len(page.all("details"))
    assert page.text.count("Made by: 6 commands") == 3  # bars, runtimes, certificates
    assert 0 < folded < len(page.all("pre"))
    words = "".join(page.words)
    for name in ("transfer-gaussian", "transfer-climsim", "abstention-nasa"):
        command = f"oneproj-paper reproduce {name} --preset paper --seeds 10"
        assert f"Made by\n{command}\n" in words  # under its own figure


def digests(report: Report) -> dict[str, str]:
    files = [report.page, *sorted(report.files.rglob("*.*"))]
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def test_same_records_same_bytes(make_record: Make, tmp_path: Path) -> None:
    records = [make_record(seed=0), make_record(method="projected-sgd")]
    found = []
    for number, listed in enumerate((records, records[::-1])):
        folder = tmp_path / f"place-{number}"
        for record in listed:
            write_record(record, folder / "runs")
        found.append(digests(write_report(folder / "runs", folder / "report.html")))
    assert found[0] == found[1]
    assert len(found[0]) == 1 + 2 * 3 + 8 * 2


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out: drawing them takes most of the time."""
    monkeypatch.setattr(figures, "_draw", lambda *_: ())


@pytest.mark.usefixtures("undrawn")
def test_an_earlier_report_leaves_nothing_behind(
    make_record: Make, tmp_path: Path
) -> None:
    write_record(make_record(), tmp_path / "runs")
    kept = tmp_path / "report-files" / "figures"
    kept.mkdir(parents=True)
    (kept / "history-of-another-day.svg").write_text("old")
    (kept / "notes.txt").write_text("the user's own")
    write_report(tmp_path / "runs", tmp_path / "report.html")
    names = {f.name for f in kept.iterdir()}
    assert "history-of-another-day.svg" not in names
    assert "notes.txt" in names


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("last", ["runtime.csv", "report.html"])
def test_what_ends_it_early_leaves_the_report_before_whole(
    make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "report.html"
    write_record(make_record(), runs)
    before = digests(write_report(runs, out))
    write_record(make_record(seed=1), runs)
    ordinary = Path.write_text

    def full(self: Path, text: str, **options: Any) -> int:  # noqa: ANN401
        ordinary(self, text[:40], **options)
        if self.name.startswith(last):
            raise OSError(28, "No space left on device")
        return ordinary(self, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OneprojError, match=r"No space left on device.*with room"):
        write_report(runs, out)
    after = digests(Report(out, tmp_path / "report-files", ()))
    assert set(after) == set(before)  # nothing is gone, and no half of a file came
    assert after["report.html"] == before["report.html"]
    assert (after == before) == (last == "runtime.csv")


@pytest.mark.usefixtures("undrawn")
def test_a_place_that_cannot_be_written_is_found_before_the_figures(
    make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(make_record(), tmp_path / "runs")
    monkeypatch.setattr(figures, "_draw", lambda *_: pytest.fail("drawn in vain"))
    (tmp_path / "file").touch()
    with pytest.raises(OneprojError, match=f"Not a directory: {tmp_path / 'file'}"):
        write_report(tmp_path / "runs", tmp_path / "file" / "report.html")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["[bold] [red].html", "a: 100 %#1?.html"])
def test_signs_in_a_name_are_signs(
    make_record: Make, tmp_path: Path, name: str
) -> None:
    write_record(make_record(), tmp_path / "runs")
    out = tmp_path / name
    result = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "-o", str(out)])
    assert result.exit_code == 0, result.output
    *_, files_line, last = result.stdout.splitlines()
    assert files_line.startswith(f"Figures and tables: {tmp_path}")
    assert last == f"Page: {out}"
    links = {str(a["href"]) for a in Page(out.read_text("utf-8")).all("a")}
    files = [urlsplit(link) for link in links if not link.startswith("#")]
    assert files
    for link in files:
        assert (link.scheme, link.query, link.fragment) == ("", "", "")
        if link.path.endswith(("csv", "tex")):
            assert (tmp_path / unquote(link.path)).is_file()


@pytest.mark.usefixtures("undrawn")
def test_mixed_versions_warnings_and_odd_text_are_shown(
    make_record: Make, tmp_path: Path
) -> None:
    other = make_record("abstention-gaussian", seed=1)
    versions = {**other.versions, "torch": "9.9.9"}
    odd = replace(other, versions=versions, warnings=("<b>slow & steady</b>",))
    for record in (make_record(), odd):
        write_record(record, tmp_path / "runs")
    page = write_report(tmp_path / "runs", tmp_path / "report.html").page
    found = Page(page.read_text("utf-8"))
    assert "The runs differ in torch; see" in found.text
    assert "2.13.0 (1 run); 9.9.9 (1 run)" in found.text
    assert "<b>slow & steady</b> (1 of 2 runs)" in found.text  # as text, no element


@pytest.mark.usefixtures("undrawn")
def test_an_experiment_that_the_paper_has_not_is_shown(
    make_record: Make, tmp_path: Path
) -> None:
    write_record(
        replace(make_record(), experiment="abstention-mine"), tmp_path / "runs"
    )
    page = write_report(tmp_path / "runs", tmp_path / "report.html").page
    assert "abstention-mine (abstention)" in Page(page.read_text("utf-8")).text


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_record_is_left_out_and_named(
    make_record: Make, tmp_path: Path
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "report.html"
    for seed in range(3):
        write_record(make_record(seed=seed), runs)
    whole = write_report(runs, out)
    assert whole.damaged == ()
    assert "damaged" not in Page(out.read_text("utf-8")).text
    for seed in (0, 2):
        path = runs / make_record(seed=seed).key.path
        path.write_text(path.read_text()[:100])
    result = CliRunner().invoke(app, ["report", str(runs), "--out", str(out)])
    assert result.exit_code == 0, result.output
    text = Page(out.read_text("utf-8")).text
    assert "1 run of 1 experiment." in text
    assert "2 records are damaged and left out: abstention-gaussian/paper/" in text
    assert str(tmp_path) not in text  # the page is the same wherever the folder is
    for seed in (0, 2):
        place = make_record(seed=seed).key.path
        assert place.as_posix() in text
        assert f"Left out: {runs / place} is truncated or damaged" in result.stderr
        assert "Left out" not in result.stdout


def test_errors_say_what_to_do(make_record: Make, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    with pytest.raises(RecordError, match=r"no folder .*`oneproj-paper reproduce"):
        write_report(tmp_path / "nothing", out)
    (tmp_path / "runs").mkdir()
    with pytest.raises(
        RecordError, match=r"holds no records.*`oneproj-paper reproduce"
    ):
        write_report(tmp_path / "runs", out)
    file = write_record(make_record(), tmp_path / "runs")
    file.write_text(file.read_text()[:100])
    with pytest.raises(RecordError, match=r"seed-0000\.json is truncated or damaged"):
        write_report(tmp_path / "runs", out)  # there is no other
    assert not out.exists()
    write_record(make_record(), tmp_path / "runs")
    out.mkdir()
    with pytest.raises(OneprojError, match="is a folder"):
        write_report(tmp_path / "runs", out)
    with pytest.raises(OneprojError, match="cannot be written"):
        write_report(tmp_path / "runs", file / "report.html")


def test_summary_has_a_line_per_group(written: Report) -> None:
    stream = io.StringIO()
    Console(file=stream, width=160).print(summary(written.groups))
    text = stream.getvalue()
    assert summary(written.groups).row_count == 12
    assert "transfer-climsim *" in text
    assert re.search(r"~9\d\d\.\d\d", text)  # extrapolated
    assert "3 of 3" in text
    assert "191.5\N{MULTIPLICATION SIGN}" in text


@pytest.mark.parametrize("width", [48, 60, 80, 100])
def test_summary_can_be_read_in_a_narrow_terminal(written: Report, width: int) -> None:
    stream = io.StringIO()
    show(Console(file=stream, width=width), summary(written.groups))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for word in ("transfer-climsim *", "augmented Lagrangian", "oneproj's", "3 of 3"):
        assert word in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_command(make_record: Make, tmp_path: Path) -> None:
    write_record(make_record(), tmp_path / "runs")
    out = tmp_path / "deep" / "page.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert str(out) in result.output
    assert out.is_file()
    assert (out.parent / "page-files" / "tables" / "abstention.csv").is_file()
    result = CliRunner().invoke(app, ["report", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "oneproj-paper reproduce" in result.output
