"""What is minimised and what is constrained: averages over data, and functions.

``base`` says what a term is. Users write ``averages`` and ``functions``, combine them
to ``expressions`` and compare these to ``constraints``. Data come in ``batches``, of
``loaders`` too, and ``calls`` run the user's function. ``probes`` try a term before a
run relies on it: the ``modes`` of its modules, the ``graphs`` behind its values, and
the ``hooks`` on its gradients.
"""
