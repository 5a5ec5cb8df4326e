"""What all tests of the paper's package share: no real host, and Ctrl-C."""

from __future__ import annotations

import os
import signal

from oneproj_paper.data.find import OFFLINE

# The tests of downloads bring a server of their own.
os.environ[OFFLINE] = "1"

# A shell ignores it for what a script runs in the background, and so would Python.
signal.signal(signal.SIGINT, signal.default_int_handler)
