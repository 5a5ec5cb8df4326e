"""A term to first order, with the size of its rounding."""

from __future__ import annotations

from oneproj.certificates.minorants import Cut
from oneproj.certificates.points import doubled
from oneproj.parameters import Vector, combine, dot, norm
from oneproj.terms.base import AbstractTerm


def linearize(term: AbstractTerm, parameters: Vector, label: str) -> Cut:
    """The value and gradient of a term on all data, as a cut in float64.

    Its ``size`` is what the dtype's rounding is relative to: the value, the numbers it
    is the difference of, and how far it moves when the point is rounded.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0], requires_grad=True)
        >>> cut = linearize(oneproj.function(lambda: w.square().sum()) <= 9.0, [w], "c")
        >>> cut.value, cut.gradient[0].tolist(), cut.size
        (0.0, [6.0], 36.0)
    """
    value, gradient = term.value_and_gradient(parameters)
    size = abs(value) + 2.0 * term.scale() + norm(gradient) * norm(parameters)
    return Cut(value, doubled(gradient), label, size)


def shifted(cut: Cut, weight: float, offset: Vector) -> Cut:
    """The cut with ``(weight/2)|offset|^2`` added, a square around another point.

    Example:
        >>> import torch
        >>> one = [torch.ones(1, dtype=torch.float64)]
        >>> shifted(Cut(0.0, one, "c", 0.0), 2.0, one).value
        1.0
    """
    return Cut(
        cut.value + 0.5 * weight * dot(offset, offset),
        combine([1.0, weight], [cut.gradient, offset]),
        cut.label,
        cut.size,
    )
