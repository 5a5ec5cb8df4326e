"""Small training problems of many kinds, run with the defaults of ``solve``.

``problems`` knows them by name, the ``problems_*`` files build them, ``ablations``
names the mechanisms that can be switched off, ``runs`` makes the runs and keeps the
record, ``compare`` says what changed. ``python -m benchmarks.train_battery --help``.
"""
