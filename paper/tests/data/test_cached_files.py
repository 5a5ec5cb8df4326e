"""Cached files: whole or none, with their digests."""

from __future__ import annotations

from pathlib import Path

import pooch
import pytest

from oneproj_paper.data.cached_files import (
    damage,
    discard,
    read_recipe,
    replacing,
    write_recipe,
)


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with replacing(path) as partial:
        partial.write_text("old")

    def stop(reason: type[BaseException]) -> None:
        with replacing(path) as partial:
            partial.write_text("new")
            raise reason

    for reason in (ValueError, KeyboardInterrupt):
        with pytest.raises(reason):
            stop(reason)
    assert path.read_text() == "old"
    assert {p.name for p in tmp_path.iterdir()} == {"table.csv", "table.csv.sha256"}


def test_damage_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with replacing(path) as partial:
        partial.write_text("old")
    assert damage(path) is None
    path.write_text("odd")
    problem = damage(path)
    assert problem is not None
    assert pooch.file_hash(str(path)) in problem


def test_a_digest_that_is_damaged_itself_is_no_match(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with replacing(path) as partial:
        partial.write_text("old")
    (tmp_path / "table.csv.sha256").write_bytes(b"\xff\xfe")
    assert "SHA-256" in str(damage(path))


def test_a_file_of_the_users_own_has_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("anything")
    assert damage(path) is None


def test_a_new_file_does_not_inherit_the_recipe_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with replacing(path) as partial:
        partial.write_text("old")
    write_recipe(path, {"rain": 10})
    assert read_recipe(path) == {"rain": 10}
    with replacing(path) as partial:
        partial.write_text("new")
    assert read_recipe(path) is None


def test_nothing_stays_of_what_is_discarded(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with replacing(path) as partial:
        partial.write_text("old")
    write_recipe(path, {})
    discard(path)
    assert list(tmp_path.iterdir()) == []
