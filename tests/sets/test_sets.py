"""``oneproj.sets``: importable as it is written, and whole."""

from __future__ import annotations

import importlib

import oneproj
from oneproj import sets as made


def test_the_module_can_be_imported_by_the_name_that_users_write() -> None:
    assert importlib.import_module("oneproj.sets") is oneproj.sets


def test_every_set_is_in_it() -> None:
    sets = {name for name, value in vars(made).items() if isinstance(value, type)}
    assert sets <= set(vars(oneproj.sets))
    assert all(vars(oneproj.sets)[name] is vars(made)[name] for name in sets)
