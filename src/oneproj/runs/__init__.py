"""A run of a method: its loop, its stops, its state to resume from.

``iterate`` is the loop; ``callbacks`` watch it, ``stops`` says who ended it,
``history`` what it saw, ``statistics`` when batch norm gathers its own. A ``run`` is a
state that is saved in ``checkpoints`` and resumed if ``outline`` and ``samples`` agree.
``failures`` explains one that found no feasible point, ``hindsight`` tells what the
record of one shows.
"""
