"""Prepares the credit data from a local server, in a process of its own."""

from __future__ import annotations

import sys

from oneproj_paper.data import credit_source, prepare_credit

if __name__ == "__main__":
    credit_source.OPENML = sys.argv[1]
    credit_source.COUNTS = (int(sys.argv[2]), int(sys.argv[3]))
    prepare_credit()
