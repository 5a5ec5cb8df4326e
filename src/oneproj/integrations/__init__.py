"""``AutoPenalty`` in the training loops of other libraries.

- ``oneproj.integrations.lightning``: a callback for Lightning's ``Trainer``.
- ``oneproj.integrations.transformers``: Hugging Face's ``Trainer`` with constraints.

Each needs the extra of its name, so import it by itself. Accelerate needs nothing: see
the page ``docs/own_loop/frameworks.md``.
"""
