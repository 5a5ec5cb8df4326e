"""Files that are whole or not there, whatever ends the writing of them."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oneproj import files
from oneproj.files import check_place, drafting, force, replacing
from oneproj.logs import write_text

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs links, modes and pipes")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("reason", [ValueError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_the_file_before(
    file: Path, reason: type[BaseException]
) -> None:
    def fail() -> None:
        with replacing(file) as draft:
            draft.write_text("new")
            raise reason

    with pytest.raises(reason):
        fail()
    assert file.read_text() == "old"
    assert names(file.parent) == ["file.txt"]


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_disk_that_fails_leaves_the_file_before(
    file: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(OSError, match="No space"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert names(file.parent) == ["file.txt"]


@POSIX
def test_the_folder_is_on_the_disk_after_the_file_took_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[tuple[str, str]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        forced.append(("folder" if folder else "file", file.read_text()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_text(file, "new")
    assert forced == [("file", "old"), ("folder", "new")]


@POSIX
@pytest.mark.parametrize(
    ("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)]
)
def test_a_disk_that_cannot_force_folders_is_no_error_and_one_that_fails_is(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: int, *, fails: bool
) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    if fails:
        with pytest.raises(OSError, match=os.strerror(number)):
            write_text(file, "new")
    else:
        write_text(file, "new")
    assert file.read_text() == "new"
    assert names(file.parent) == ["file.txt"]


def test_the_content_is_on_the_disk_before_it_takes_the_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, Path.replace

    def forced(number: int) -> None:
        sync(number)
        steps.append(f"{os.fstat(number).st_size} bytes forced")

    def moved(path: Path, target: Path) -> Path:
        steps.append(f"{path.suffix} moved")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(Path, "replace", moved)
    write_text(file, "newer")
    assert steps[:2] == ["5 bytes forced", ".draft moved"]
    assert file.read_text() == "newer"


def test_two_writers_do_not_share_a_draft(file: Path) -> None:
    with replacing(file) as first:
        first.write_text("first")
        with replacing(file) as second:
            second.write_text("second")
        assert file.read_text() == "second"
        assert first.read_text() == "first"
    assert file.read_text() == "first"
    assert names(file.parent) == ["file.txt"]


def draft_of(file: Path, process: int) -> Path:
    """What another process of this machine left, or writes just now."""
    with drafting(file) as draft:
        name = draft.name.replace(f"-{os.getpid()}-", f"-{process}-")
    other = file.with_name(name)
    other.write_text("a half of much mo")
    return other


def test_what_a_killed_process_left_is_gone_after_the_next_write(file: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        pass
    draft_of(file, process.pid)
    alive = draft_of(file, os.getppid())
    other = draft_of(file.with_name("a-file.txt"), process.pid)
    write_text(file, "new")
    assert file.read_text() == "new"
    assert names(file.parent) == sorted(["file.txt", alive.name, other.name])


def test_what_another_machine_left_is_gone_after_a_day(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = draft_of(file, 1)
    old = draft_of(file, 1)
    long_ago = time.time() - 2 * 86_400
    os.utime(old, (long_ago, long_ago))
    monkeypatch.setattr(files, "_machine", lambda: "elsewhere")
    write_text(file, "new")
    assert names(file.parent) == ["file.txt", young.name]


def test_a_place_is_tried_before_it_is_needed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_place(file)
    assert file.read_text() == "old"
    assert names(file.parent) == ["file.txt"]
    with pytest.raises(OSError, match=r"file\.txt"):
        check_place(file / "table.csv")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        check_place(file)
    assert names(file.parent) == ["file.txt"]


def test_lines_end_as_they_are_given(file: Path) -> None:
    write_text(file, "a\nb\r\n\N{PLUS-MINUS SIGN}")
    assert file.read_bytes() == b"a\nb\r\n\xc2\xb1"


def test_a_draft_that_is_not_wanted_leaves_nothing(file: Path) -> None:
    with drafting(file) as draft:
        draft.write_text("new")
        force(draft)
    assert file.read_text() == "old"
    assert names(file.parent) == ["file.txt"]


@POSIX
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one_and_what_it_leads_to_is_written(
    file: Path, *, there: bool
) -> None:
    link, target = file.with_name("link"), file if there else file.parent / "new" / "f"
    link.symlink_to(target)
    check_place(link)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(target.parent) == (["file.txt", "link"] if there else ["f"])


@POSIX
def test_the_mode_of_a_file_stays(file: Path) -> None:
    for mode in (0o640, 0o600, 0o664):
        file.chmod(mode)
        write_text(file, "new")
        assert stat.S_IMODE(file.stat().st_mode) == mode


@POSIX
def test_a_pipe_is_handed_what_is_written_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_place(pipe)
        write_text(pipe, "new")
        assert os.read(reader, 9) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]
