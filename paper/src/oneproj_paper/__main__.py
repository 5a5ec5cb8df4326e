"""The command line's door: ``oneproj-paper``, or ``python -m oneproj_paper``."""

from __future__ import annotations

from oneproj_paper.cli import app
from oneproj_paper.cli.exits import as_ctrl_c, last_words, speak_plainly


def main() -> None:
    """Run the command line."""
    speak_plainly()
    with as_ctrl_c(), last_words():
        app(prog_name="oneproj-paper")


if __name__ == "__main__":
    main()
