"""The whole suite."""

from __future__ import annotations

from benchmarks.projection import convex, hock_schittkowski, networks, with_sets
from benchmarks.projection.cases import Instance


def all_instances() -> list[Instance]:
    """All problems, in a fixed order.

    Example:
        >>> len(all_instances()) >= 600
        True
    """
    modules = (hock_schittkowski, convex, with_sets, networks)
    return [instance for module in modules for instance in module.instances()]
