"""A run of a method: its loop, its stops, its state to resume from.

``iterate`` is the loop; ``stops`` says who ends it, ``history`` what it saw. A ``run``
is a state that is saved in ``checkpoints`` and resumed if ``fingerprints`` and
``samples`` agree. ``failures`` explains one that found no feasible point, ``hindsight``
tells what the record of one shows.
"""
