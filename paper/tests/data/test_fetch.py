"""One file from one address: every way a transfer can go wrong."""

from __future__ import annotations

import hashlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oneproj.errors import DataNotFoundError, InvalidDataError
from oneproj_paper.data import cache
from oneproj_paper.data.fetch import PIECE, Patience, fetch
from oneproj_paper.data.part import Checksum

if TYPE_CHECKING:
    from tests.data.conftest import Answer, Server

BODY = bytes(range(256)) * 2_000
SHA256 = hashlib.sha256(BODY).hexdigest()
HALF = len(BODY) // 2
VERSION = {"ETag": '"v1"'}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "file.bin"


def leftovers(target: Path) -> set[str]:
    found = target.parent.glob("*") if target.parent.is_dir() else ()
    return {path.name for path in found}


def test_a_file_arrives_with_its_digest_beside_it(server: Server, target: Path) -> None:
    assert fetch(server.say("/f", BODY), target) == target
    assert target.read_bytes() == BODY
    assert leftovers(target) == {"file.bin", "file.bin.sha256"}
    assert cache.damage(target) is None


def test_a_truncated_transfer_is_tried_again(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(BODY, cut=HALF), BODY)
    fetch(url, target)
    assert target.read_bytes() == BODY
    # Without an ETag the first half could be of another version: all is asked for.
    assert [headers.get("Range") for _, headers in server.requests] == [None, None]


def test_a_truncated_transfer_never_becomes_the_file(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(BODY, cut=HALF))
    with pytest.raises(DataNotFoundError, match=r"could not be fetched.*3 times"):
        fetch(url, target)
    assert len(server.requests) == 3
    assert leftovers(target) == set()


def test_what_has_arrived_is_continued(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say(
        "/f", answer(BODY, headers=VERSION, cut=HALF), answer(BODY, headers=VERSION)
    )
    fetch(url, target, checksum=Checksum("sha256", SHA256))
    assert target.read_bytes() == BODY
    again = server.requests[1][1]
    assert (again["Range"], again["If-Range"]) == (
        f"bytes={HALF // PIECE * PIECE}-",
        '"v1"',
    )


def test_another_run_continues_what_has_arrived(
    server: Server, answer: type[Answer], target: Path
) -> None:
    lost = answer(status=503)
    url = server.say("/f", answer(BODY, headers=VERSION, cut=2 * PIECE + 1), lost)
    with pytest.raises(DataNotFoundError):
        fetch(url, target)
    assert not target.exists()
    assert target.with_name("file.bin.part").stat().st_size == 2 * PIECE
    server.say("/f", answer(BODY, headers=VERSION))
    fetch(url, target)
    assert target.read_bytes() == BODY
    assert server.requests[-1][1]["Range"] == f"bytes={2 * PIECE}-"
    assert leftovers(target) == {"file.bin", "file.bin.sha256"}


def test_attempts_are_counted_from_the_last_that_brought_something(
    server: Server, answer: type[Answer], target: Path
) -> None:
    some = answer(BODY, headers=VERSION, cut=PIECE + 1)
    fetch(server.say("/f", some), target)
    assert target.read_bytes() == BODY
    assert len(server.requests) == -(-len(BODY) // PIECE) > 3


def test_a_new_version_is_not_glued_to_an_old_part(
    server: Server, answer: type[Answer], target: Path
) -> None:
    old, new = answer(b"x" * len(BODY), headers=VERSION, cut=HALF), {"ETag": '"v2"'}
    fetch(server.say("/f", old, answer(BODY, headers=new)), target)
    assert target.read_bytes() == BODY


def test_a_part_that_the_server_refuses_is_dropped(
    server: Server, answer: type[Answer], target: Path
) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(BODY + b"too much")
    target.with_name("file.bin.part.etag").write_text('"v1"')
    fetch(server.say("/f", answer(status=416), answer(BODY, headers=VERSION)), target)
    assert target.read_bytes() == BODY


def leave_part(target: Path, body: bytes) -> None:
    """As a run does that was killed before it could give the file its name."""
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(body)
    target.with_name("file.bin.part.etag").write_text('"v1"')


@pytest.mark.parametrize("checksum", [None, Checksum("sha256", SHA256)])
@pytest.mark.parametrize("version", [{}, VERSION], ids=["no ETag", "ETag"])
def test_a_part_that_is_whole_is_not_fetched_again(
    server: Server,
    answer: type[Answer],
    target: Path,
    version: dict[str, str],
    checksum: Checksum | None,
) -> None:
    leave_part(target, BODY)
    refused = answer(
        status=416, headers={"Content-Range": f"bytes */{len(BODY)}", **version}
    )
    fetch(server.say("/f", refused), target, checksum=checksum)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 1
    assert leftovers(target) == {"file.bin", "file.bin.sha256"}


@pytest.mark.parametrize(
    ("part", "refusal"),
    [
        (BODY[:-1], {"Content-Range": f"bytes */{len(BODY)}"}),
        (BODY, {"Content-Range": f"bytes */{len(BODY)}", "ETag": '"v2"'}),
        (BODY[::-1], {"Content-Range": f"bytes */{len(BODY)}"}),
        (BODY, {}),
    ],
    ids=["short", "another version", "other bytes", "no length"],
)
def test_a_part_that_is_of_no_use_starts_again_and_says_so(
    server: Server,
    answer: type[Answer],
    target: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    part: bytes,
    refusal: dict[str, str],
) -> None:
    leave_part(target, part)
    refused = answer(status=416, headers=refusal)
    url = server.say("/f", refused, answer(BODY, headers={"ETag": '"v2"'}))
    fetch(url, target, checksum=Checksum("sha256", SHA256))
    assert target.read_bytes() == BODY
    assert [headers.get("Range") for _, headers in server.requests] == [
        f"bytes={len(part)}-",
        None,
    ]
    assert "starts again from the beginning. Trying again in 0 s" in caplog.text


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_wrong_checksum_is_refused_and_nothing_kept(
    server: Server, target: Path, algorithm: str
) -> None:
    wrong = Checksum(algorithm, "0" * 32)
    with pytest.raises(InvalidDataError, match=rf"arrived with {algorithm} \w+, exp"):
        fetch(server.say("/f", BODY), target, checksum=wrong)
    assert leftovers(target) == set()


@pytest.mark.parametrize(("announced", "good"), [(SHA256, True), ("0" * 64, False)])
def test_the_checksum_of_the_hub_comes_with_its_redirect(
    server: Server, answer: type[Answer], target: Path, announced: str, *, good: bool
) -> None:
    server.say("/cdn", answer(BODY, headers=VERSION))
    headers = {"Location": "/cdn", "X-Linked-ETag": f'"{announced}"'}
    url = server.say("/f", answer(status=302, headers=headers))
    if good:
        fetch(url, target)
        return
    with pytest.raises(InvalidDataError, match="sha256"):
        fetch(url, target)
    assert leftovers(target) == set()


def test_a_missing_file_is_not_asked_for_again(server: Server, target: Path) -> None:
    with pytest.raises(DataNotFoundError, match="HTTP 404"):
        fetch(f"{server.url}/none", target)
    assert len(server.requests) == 1
    assert leftovers(target) == set()


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_passing_trouble_is_waited_out(
    server: Server, answer: type[Answer], target: Path, status: int
) -> None:
    fetch(server.say("/f", answer(status=status), BODY), target)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 2


def test_lasting_trouble_is_named(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(status=500))
    with pytest.raises(
        DataNotFoundError, match=r"HTTP 500 .*\. Tried 3 times in \d+ s\. "
    ):
        fetch(url, target)
    assert len(server.requests) == 3


def test_pauses_double(
    server: Server, answer: type[Answer], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("oneproj_paper.data.fetch.time.sleep", pauses.append)
    patience = Patience(attempts=4, first=2.0, longest=100.0)
    monkeypatch.setattr("oneproj_paper.data.fetch.PATIENCE", patience)
    fetch(server.say("/f", *[answer(status=503)] * 3, BODY), target)
    assert pauses == [2.0, 4.0, 8.0]


def test_retry_after_is_respected(
    server: Server, answer: type[Answer], target: Path
) -> None:
    busy = answer(status=429, headers={"Retry-After": "1"})
    begin = time.monotonic()
    fetch(server.say("/f", busy, BODY), target)
    assert time.monotonic() - begin >= 1.0
    assert target.read_bytes() == BODY


def test_a_server_that_asks_for_too_much_patience_is_left(
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
    assert leftovers(target) == set()


def test_a_server_that_is_not_there_is_named(server: Server, target: Path) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(DataNotFoundError, match=rf"{server.url}/f could not be"):
        fetch(f"{server.url}/f", target)


def test_attempts_are_counted_aloud(
    server: Server,
    answer: type[Answer],
    target: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oneproj_paper.data")
    url = server.say("/f", answer(status=503), answer(status=429), BODY)
    fetch(url, target)
    trouble = "file.bin: 127.0.0.1 answered HTTP"
    first, second, third = caplog.messages
    assert first == f"Trying {url}, attempt 1 of 3."
    assert second.startswith(f"{trouble} 503")
    assert second.endswith("Trying again in 0 s, attempt 2 of 3.")
    assert third.startswith(f"{trouble} 429")
    assert third.endswith("attempt 3 of 3.")
    caplog.clear()
    fetch(server.say("/f", answer(status=503), BODY), target, progress=False)
    (only,) = caplog.messages  # one file of many is named when it is in trouble
    assert "attempt 2 of 3" in only


def test_the_last_word_is_ours_and_says_what_is_kept(
    server: Server, answer: type[Answer], target: Path
) -> None:
    url = server.say("/f", answer(BODY, headers=VERSION, cut=2 * PIECE + 1))
    server.answers["/f"].append(answer(BODY, headers=VERSION, cut=0))
    with pytest.raises(DataNotFoundError) as caught:
        fetch(url, target)
    message = str(caught.value)
    assert "the connection to 127.0.0.1 failed: " in message
    assert "Tried 3 times" in message
    assert message.endswith("again later: the 0.1 MB that have arrived are kept.")
    assert "HTTPConnectionPool" not in message


def test_an_address_that_is_none_is_named(server: Server, target: Path) -> None:
    del server
    with pytest.raises(DataNotFoundError, match="could not be fetched"):
        fetch("gopher://127.0.0.1/f", target)


def test_ctrl_c_leaves_the_old_file(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    url = server.say("/f", BODY)
    fetch(url, target)
    server.say("/f", b"new" * 1_000)
    monkeypatch.setattr("requests.Response.iter_content", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(url, target)
    assert target.read_bytes() == BODY
    assert leftovers(target) == {"file.bin", "file.bin.sha256"}


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
    assert "file.bin" in capfd.readouterr().err


def test_a_short_file_is_noticed_where_the_library_does_not(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Old versions of urllib3 end a truncated transfer without a word.
    monkeypatch.setattr("requests.Response.iter_content", lambda *_: [BODY[:HALF]])
    with pytest.raises(DataNotFoundError, match="256,000 of 512,000 bytes arrived"):
        fetch(server.say("/f", BODY), target)
    assert leftovers(target) == set()


def test_a_weak_version_is_not_continued(
    server: Server, answer: type[Answer], target: Path
) -> None:
    weak = {"ETag": 'W/"v1"'}
    first = answer(BODY, headers=weak, cut=HALF)
    fetch(server.say("/f", first, answer(BODY, headers=weak)), target)
    assert "Range" not in server.requests[1][1]
