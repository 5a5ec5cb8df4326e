"""Parameter-size vectors: arrays where they are short, tensors in blocks where not.

A ``space`` packs the displacements from its origin and writes them back. ``packed`` has
the vectors, ``piles`` those that are kept for their inner products, and ``blocks`` the
arithmetic of long ones.
"""
