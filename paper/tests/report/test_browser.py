"""The page in a real browser: no errors, nothing cut off, every figure there."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oneproj_paper.report.write import Report

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (1280, 390)
LETTER = 960
"""Pixels of the shorter of the two usual papers, on its side, between the margins."""
THEMES = ("light", "dark")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    DRIVER is None or CHROMIUM is None,
    reason="no chromium and chromedriver (apt install chromium chromium-driver)",
)


class Browser:
    """As much of the WebDriver protocol as these tests need, without a library."""

    def __init__(self, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._server = subprocess.Popen(
            [str(DRIVER), f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._root = f"http://127.0.0.1:{port}"
        self._wait()
        options = {
            "binary": CHROMIUM,
            "args": [*FLAGS, f"--user-data-dir={profile}"],
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        asked = {"capabilities": {"alwaysMatch": wanted}}
        self._session = f"/session/{self._post('/session', asked)['sessionId']}"

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self._root}/status", timeout=5):  # noqa: S310
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        message = "chromedriver does not answer"
        raise TimeoutError(message)

    def _post(self, path: str, content: object) -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(  # noqa: S310 - this machine's own driver
            self._root + path,
            json.dumps(content).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return json.load(answer)["value"]

    def open(self, page: Path, width: int, theme: str, media: str = "") -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": theme}
        self._cdp("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
        self._post(f"{self._session}/url", {"url": page.as_uri()})
        deadline = time.monotonic() + PATIENCE
        while self.run("return document.readyState") != "complete":
            assert time.monotonic() < deadline

    def _cdp(self, command: str, parameters: dict[str, Any]) -> Any:  # noqa: ANN401
        asked = {"cmd": command, "params": parameters}
        return self._post(f"{self._session}/goog/cdp/execute", asked)

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever the script returns
        asked = {"script": script, "args": []}
        return self._post(f"{self._session}/execute/sync", asked)

    def log(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._post(
            f"{self._session}/se/log", {"type": "browser"}
        )
        return entries

    def print_pdf(self) -> bytes:
        asked = {"printBackground": True}
        return base64.b64decode(self._cdp("Page.printToPDF", asked)["data"])

    def screenshot(self, file: Path, top: int = 0, height: int = 0) -> None:
        """The whole page, or a part of it; for looking, no test needs it."""
        box = self.run(
            "const r = document.documentElement;return [r.clientWidth, r.scrollHeight]"
        )
        tall = min(height or box[1], box[1] - top)
        clip = {"x": 0, "y": top, "width": box[0], "height": tall, "scale": 1}
        asked = {"captureBeyondViewport": True, "clip": clip}
        data = self._cdp("Page.captureScreenshot", asked)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        try:
            request = urllib.request.Request(  # noqa: S310 - as above
                self._root + self._session, method="DELETE"
            )
            urllib.request.urlopen(request, timeout=PATIENCE).close()  # noqa: S310
        finally:
            self._server.terminate()
            self._server.wait(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield started
    finally:
        started.close()


OVERFLOWING = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")].filter(e => {
  const box = e.getBoundingClientRect();
  const head = e.closest("thead");  // on a phone the head is for screen readers only
  const hidden = head && getComputedStyle(head).position === "absolute";
  const shown = !hidden && box.width > 1 && box.height > 1 && box.right > 0;
  return shown && (box.right > width + 0.5 || box.left < -0.5);
}).map(e => e.outerHTML.slice(0, 120));
"""
CLIPPED = """
return [...document.querySelectorAll(".panel svg")].filter(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].some(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1
      || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  });
}).map(svg => svg.parentElement.getAttribute("aria-label"));
"""
SIZES = """
return [...document.querySelectorAll(".panel svg")].map(svg => {
  const box = svg.getBoundingClientRect();
  return [box.width, box.height];
});
"""
COLOURS = """
const style = e => getComputedStyle(document.querySelector(e));
return [style("body").backgroundColor, style("body").color,
        style(".panel svg text").fill, style(".panel svg path").stroke,
        style("small").color, style(".badge").color];
"""


def luminance(colour: str) -> float:
    """Of WCAG 2, of a colour such as ``rgb(20, 23, 27)``."""
    values = [float(v) for v in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [
        v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4
        for v in values
    ]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, two: str) -> float:
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_and_every_figure_is_there(
    browser: Browser, written: Report, width: int, theme: str
) -> None:
    browser.open(written.page, width, theme)
    assert browser.log() == []
    assert browser.run("return document.documentElement.clientWidth") >= width - 20
    assert browser.run(
        "const r = document.documentElement; return r.scrollWidth <= r.clientWidth"
    )
    assert browser.run(OVERFLOWING) == []
    assert browser.run(CLIPPED) == []
    sizes = browser.run(SIZES)
    assert len(sizes) == 2 + 3 * 6  # the bars, and three experiments in two presets
    assert all(w > 250 and h > 150 for w, h in sizes)
    page, *inks = browser.run(COLOURS)
    assert (luminance(page) > 0.5) == (theme == "light")
    assert all(contrast(page, ink) >= 4.5 for ink in inks if ink != "none")


def test_print_is_light_and_fits_a_page(browser: Browser, written: Report) -> None:
    browser.open(written.page, LETTER, "dark", media="print")
    assert browser.run(OVERFLOWING) == []
    page, *inks = browser.run(COLOURS)
    assert luminance(page) > 0.9
    assert all(contrast(page, ink) >= 4.5 for ink in inks if ink != "none")
    assert browser.print_pdf().startswith(b"%PDF")


def test_page_asks_for_nothing_else(browser: Browser, written: Report) -> None:
    browser.open(written.page, 1280, "light")
    asked = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert browser.run(asked) == []


def test_a_page_that_overflows_is_found(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    wide = "<div style='width:2000px;height:9px'>x</div>"
    page.write_text(f"<title>t</title>{wide}<script>nothing()</script>")
    browser.open(page, 390, "light")
    assert len(browser.run(OVERFLOWING)) == 1
    assert [entry["level"] for entry in browser.log()] == ["SEVERE"]
