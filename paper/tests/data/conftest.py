"""A data folder of the test's own, a local server, and the real files if there are."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from oneproj_paper.data import find
from oneproj_paper.data.find import OFFLINE

REAL = os.environ.get(find.VARIABLE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that ONEPROJ_DATA names, and an empty cache beside it."""
    monkeypatch.setenv(find.CACHE_VARIABLE, str(tmp_path / "cache"))
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv(find.VARIABLE, str(own))
    return own


@pytest.fixture
def cache(folder: Path) -> Path:
    """The empty cache."""
    del folder
    return find.cache_folder()


@pytest.fixture
def real_data() -> Path:
    """Skips where the real files are not there."""
    if REAL is None:
        pytest.skip(f"{find.VARIABLE} is not set: the real files are not here")
    return Path(REAL)


@dataclass
class Answer:
    """What the server says once."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes after which the connection is closed, though more were announced."""
    hangs: bool = False
    """Whether it falls silent there instead, and goes on when the test says so."""


class Server(ThreadingHTTPServer):
    """Answers by path, in the order given; the last answer of a path stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.go_on = threading.Event()
        self.silent = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def say(self, path: str, *answers: Answer | bytes) -> str:
        made = [Answer(a) if isinstance(a, bytes) else a for a in answers]
        self.answers[path] = made
        return self.url + path

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        self.server.requests.append((self.path, dict(self.headers)))
        waiting = self.server.answers.get(path, [Answer(b"none", 404)])
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        body, status = answer.body, answer.status
        self.send_response(status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: answer.cut])
        if answer.cut is not None:
            self.wfile.flush()
            if answer.hangs:
                self.server.silent.set()
                self.server.go_on.wait(60)
                with contextlib.suppress(OSError):  # the client may have left
                    self.wfile.write(body[answer.cut :])
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


LOOK_UP = socket.getaddrinfo


def only_local(host: str, *arguments: object, **named: object) -> object:
    """A look-up that finds this machine and no other."""
    if host != "127.0.0.1":
        message = f"a test asked for the real host {host}"
        raise AssertionError(message)
    return LOOK_UP(host, *arguments, **named)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A local server; downloads are allowed, and retried at once."""
    monkeypatch.delenv(OFFLINE, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", only_local)
    monkeypatch.setattr("oneproj_paper.data.fetch.RETRIES", 2)
    monkeypatch.setattr("oneproj_paper.data.fetch.READ_TIMEOUT", 0.3)
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _: None))
    local = Server()
    thread = threading.Thread(target=local.serve_forever, args=(0.01,))
    thread.start()
    yield local
    local.go_on.set()
    local.shutdown()
    thread.join()
    local.server_close()


@pytest.fixture
def answer() -> type[Answer]:
    """The class of what the server says; tests cannot import this file."""
    return Answer
