"""What is minimised and what is constrained: averages over data, and functions.

``base`` says what a term is. Users write ``averages`` and ``functions``, combine them
to ``expressions`` and compare these to ``constraints``. Data come in ``batches``, and
``probes`` try a term before a run relies on it.
"""
