"""No test talks to a real host: the tests of downloads bring a server of their own."""

from __future__ import annotations

import os

from oneproj.data.offline import OFFLINE

os.environ[OFFLINE] = "1"
