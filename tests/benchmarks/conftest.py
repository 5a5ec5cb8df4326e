"""The benchmark programs, called as their command lines would."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner


@pytest.fixture
def run_program() -> Callable[..., Result]:
    """Run ``python -m benchmarks.<name>`` with arguments, in this process."""

    def run(name: str, *arguments: object) -> Result:
        app = typer.Typer(pretty_exceptions_enable=False)
        app.command()(import_module(f"benchmarks.{name}").main)
        return CliRunner().invoke(app, [*map(str, arguments)])

    return run
