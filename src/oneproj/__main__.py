"""The command line's door: ``oneproj``, or ``python -m oneproj``."""

from __future__ import annotations

import sys

from oneproj.extras import install

NEEDED = {"rich", "typer"}
"""The packages of the extra ``cli``."""


def main() -> None:
    """Run the command line, or say what is missing for it."""
    try:
        from oneproj.cli import app
        from oneproj.cli.exits import as_ctrl_c, last_words, speak_plainly
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        sys.exit(f"The command line needs {missing}. Try: {install('cli')}")
    speak_plainly()
    with as_ctrl_c(), last_words():
        app(prog_name="oneproj")


if __name__ == "__main__":
    main()
