"""What is minimised, under which constraints.

``functions`` has the two terms that users write, ``mean`` and ``function``; ``terms``
says what a term and a constraint are, and ``expressions`` combine them. ``data`` makes
batches. ``checks`` try a term before a run relies on it, in the right ``modes``.
``problem`` puts all of it together.
"""
