"""What went wrong on the way to a server, told without a library's own terms."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oneproj.errors import DataNotFoundError
from oneproj_paper.data.fetch import fetch

if TYPE_CHECKING:
    from tests.data.conftest import Server


def reason(url: str, folder: Path) -> str:
    with pytest.raises(DataNotFoundError) as caught:
        fetch(url, folder / "file")
    message = str(caught.value)
    for term in ("Pool", "Max retries", "Errno", "object at 0x"):
        assert term not in message
    return message.partition("could not be fetched: ")[2].partition(". Tried 3")[0]


def test_without_a_network_no_name_is_found(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server  # only its patience is needed

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert reason("https://data.example/f", tmp_path) == (
        "the name data.example could not be looked up, so there may be no network here"
    )


def test_a_closed_door(server: Server, tmp_path: Path) -> None:
    server.shutdown()
    server.server_close()
    assert reason(f"{server.url}/f", tmp_path) == "127.0.0.1 refused the connection"


def test_a_server_that_speaks_no_tls(server: Server, tmp_path: Path) -> None:
    url = server.url.replace("http://", "https://")
    assert reason(url, tmp_path).startswith("no secure connection to 127.0.0.1: ")


def test_a_proxy_that_is_not_there(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    server.shutdown()
    server.server_close()
    found = reason("http://data.example/f", tmp_path)
    start = "the proxy of this machine (HTTPS_PROXY) did not reach data.example: "
    assert found.startswith(start)
