"""One file from one address: every way a transfer can go wrong."""

from __future__ import annotations

import hashlib
import logging
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oneproj_paper.data.fetch import fetch
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

if TYPE_CHECKING:
    from tests.data.conftest import Answer, Server

BODY = bytes(range(256)) * 2_000
SHA256 = hashlib.sha256(BODY).hexdigest()
HALF = len(BODY) // 2


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "file.bin"


def files_beside(target: Path) -> set[str]:
    found = target.parent.glob("*") if target.parent.is_dir() else ()
    return {path.name for path in found}


def test_a_file_arrives(server: Server, target: Path) -> None:
    assert fetch(server.say("/f", BODY), target) == target
    assert target.read_bytes() == BODY
    assert files_beside(target) == {"file.bin"}


@pytest.mark.parametrize("checksum", [None, f"sha256:{SHA256}"])
def test_a_file_that_is_there_is_not_fetched_again(
    server: Server, target: Path, checksum: str | None
) -> None:
    url = server.say("/f", BODY)
    fetch(url, target, checksum=checksum)
    fetch(url, target, checksum=checksum)
    assert len(server.requests) == 1


def test_a_file_with_another_checksum_is_replaced(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(BODY[::-1])
    fetch(server.say("/f", BODY), target, checksum=f"sha256:{SHA256}")
    assert target.read_bytes() == BODY


def test_a_truncated_transfer_is_tried_again(
    server: Server, answer: type[Answer], target: Path
) -> None:
    fetch(server.say("/f", answer(BODY, cut=HALF), BODY), target)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_truncated_transfer_never_becomes_the_file(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(BODY, cut=HALF))
    with pytest.raises(DataNotFoundError, match=r"could not be fetched.*3 times"):
        fetch(url, target)
    assert len(server.requests) == 3
    assert files_beside(target) == set()


def test_the_temporary_file_of_a_killed_process_is_removed(
    server: Server, target: Path
) -> None:
    target.parent.mkdir()
    target.with_name("tmpa1_b2c3d").write_bytes(BODY[:HALF])
    target.with_name("tmp-notes.txt").write_text("the user's own")
    fetch(server.say("/f", BODY), target)
    assert files_beside(target) == {"file.bin", "tmp-notes.txt"}


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_wrong_checksum_is_refused_and_nothing_kept(
    server: Server, target: Path, algorithm: str
) -> None:
    wrong = "0" * 32
    with pytest.raises(InvalidDataError, match=rf"expected {algorithm}:{wrong} but"):
        fetch(server.say("/f", BODY), target, checksum=f"{algorithm}:{wrong}")
    assert files_beside(target) == set()


@pytest.mark.parametrize(("sent", "good"), [(SHA256, True), ("0" * 64, False)])
def test_the_checksum_of_the_hub_comes_with_its_redirect(
    server: Server, answer: type[Answer], target: Path, sent: str, *, good: bool
) -> None:
    server.say("/cdn", BODY)
    headers = {"Location": "/cdn", "X-Linked-ETag": f'"{sent}"'}
    url = server.say("/f", answer(status=302, headers=headers))
    if good:
        fetch(url, target)
        assert target.read_bytes() == BODY
        return
    with pytest.raises(InvalidDataError, match=f"SHA-256 {SHA256}, but .* {sent}"):
        fetch(url, target)
    assert files_beside(target) == set()


def test_a_missing_file_is_not_asked_for_again(server: Server, target: Path) -> None:
    with pytest.raises(DataNotFoundError, match="HTTP 404"):
        fetch(f"{server.url}/none", target)
    assert len(server.requests) == 1
    assert files_beside(target) == set()


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_temporary_error_of_the_server_is_tried_again(
    server: Server, answer: type[Answer], target: Path, status: int
) -> None:
    fetch(server.say("/f", answer(status=status), BODY), target)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_lasting_error_of_the_server_is_named(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(status=500))
    with pytest.raises(
        DataNotFoundError, match=r"HTTP 500 .*\. Tried 3 times in \d+ s\. "
    ):
        fetch(url, target)
    assert len(server.requests) == 3


def test_retry_after_is_respected(
    server: Server, answer: type[Answer], target: Path
) -> None:
    busy = answer(status=429, headers={"Retry-After": "1"})
    begin = time.monotonic()
    fetch(server.say("/f", busy, BODY), target)
    assert time.monotonic() - begin >= 1.0
    assert target.read_bytes() == BODY


def test_a_server_that_asks_to_wait_too_long_is_left(
    server: Server, answer: type[Answer], target: Path
) -> None:
    busy = answer(status=429, headers={"Retry-After": "3600"})
    with pytest.raises(DataNotFoundError, match="asks to wait 3,600 seconds"):
        fetch(server.say("/f", busy, BODY), target)
    assert len(server.requests) == 1


def test_a_retry_after_that_makes_no_sense_is_no_reason_to_stop(
    server: Server, answer: type[Answer], target: Path
) -> None:
    busy = answer(status=503, headers={"Retry-After": "soon"})
    fetch(server.say("/f", busy, BODY), target)
    assert target.read_bytes() == BODY


def test_silence_is_not_waited_for_forever(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(BODY, cut=HALF, hangs=True))
    begin = time.monotonic()
    with pytest.raises(DataNotFoundError, match=r"127\.0\.0\.1 was silent for too"):
        fetch(url, target)
    assert time.monotonic() - begin < 5
    assert files_beside(target) == set()


def test_attempts_are_logged(
    server: Server,
    answer: type[Answer],
    target: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oneproj_paper.data")
    url = server.say("/f", answer(status=503), answer(status=429), BODY)
    fetch(url, target)
    first, second, third = caplog.messages
    assert first == f"Trying {url}, attempt 1 of 3."
    assert second.startswith("file.bin: 127.0.0.1 answered HTTP 503")
    assert second.endswith("(attempt 1 of 3).")
    assert third.startswith("file.bin: 127.0.0.1 answered HTTP 429")
    assert third.endswith("(attempt 2 of 3).")
    caplog.clear()
    target.unlink()
    fetch(server.say("/f", answer(status=503), BODY), target, progress=False)
    (only,) = caplog.messages  # one file of many is named when an attempt fails
    assert "attempt 1 of 3" in only


def test_an_address_that_is_none_is_named(server: Server, target: Path) -> None:
    del server
    with pytest.raises(DataNotFoundError, match="could not be fetched"):
        fetch("gopher://127.0.0.1/f", target)


def test_ctrl_c_leaves_the_old_file(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    new = b"new" * 1_000
    url = server.say("/f", BODY)
    fetch(url, target)
    server.say("/f", new)
    monkeypatch.setattr("requests.Response.iter_content", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(url, target, checksum=f"sha256:{hashlib.sha256(new).hexdigest()}")
    assert target.read_bytes() == BODY
    assert files_beside(target) == {"file.bin"}


def test_offline_nothing_is_asked_for(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEPROJ_OFFLINE", "1")
    with pytest.raises(DataNotFoundError, match="ONEPROJ_OFFLINE is set"):
        fetch(server.say("/f", BODY), target)
    assert server.requests == []


@pytest.mark.parametrize("value", ["", "0", "false", "No"])
def test_offline_can_be_switched_off_in_words(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ONEPROJ_OFFLINE", value)
    fetch(server.say("/f", BODY), target)
    assert target.read_bytes() == BODY


def test_progress_is_shown(
    server: Server, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch(server.say("/f", BODY), target, progress=True)
    shown = capfd.readouterr().err
    assert "file.bin" in shown
    assert "100%" in shown


# --- why a request failed, in words -------------------------------------------


def reason(url: str, target: Path) -> str:
    with pytest.raises(DataNotFoundError) as caught:
        fetch(url, target)
    message = str(caught.value)
    for term in ("Pool", "Max retries", "Errno", "object at 0x"):
        assert term not in message
    return message.partition("could not be fetched: ")[2].partition(". Tried 3")[0]


def test_without_a_network_no_address_is_found(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server  # only its short pauses are needed

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert reason("https://data.example/f", target) == (
        "there is no address for data.example, so there may be no network here"
    )


def test_a_connection_that_is_refused(server: Server, target: Path) -> None:
    server.shutdown()
    server.server_close()
    assert reason(f"{server.url}/f", target) == "127.0.0.1 refused the connection"


def test_a_server_without_tls(server: Server, target: Path) -> None:
    url = server.url.replace("http://", "https://")
    assert reason(url, target).startswith("no secure connection to 127.0.0.1: ")


def test_a_proxy_that_is_not_there(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    server.shutdown()
    server.server_close()
    found = reason("http://data.example/f", target)
    start = "the proxy of this machine (HTTPS_PROXY) did not reach data.example: "
    assert found.startswith(start)
