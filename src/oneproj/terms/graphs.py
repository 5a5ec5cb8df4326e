"""How a value came about, by the graph that autograd recorded of it.

A function is called anew at every point, and its gradient is asked for by parameter. A
part of the graph that was there before the call keeps the value of another point; one
that is recomputed in the backward pass is not asked at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import Node

from oneproj.errors import InvalidProblemError

REENTRANT = "CheckpointFunctionBackward"
"""The node of ``torch.utils.checkpoint`` that knows nothing of what it recomputes."""

VIEW = re.compile(
    r"(Alias|AsStrided|Diagonal|Expand|Permute|ReshapeAlias|Select|Slice|Squeeze|T|"
    r"Transpose|Unfold|Unsqueeze|View|ViewAsComplex|ViewAsReal)Backward\d+"
)
"""Nodes of results that have no memory of their own: they move with the parameters.
Those of split, chunk and unbind do so too, but torch forbids their use thereafter."""


def nodes(value: Tensor) -> set[Node]:
    """Every operation that a value was computed by, back to the leaves.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> sorted(type(node).__name__ for node in nodes(w.sum()))
        ['AccumulateGrad', 'SumBackward0']
    """
    return _behind([] if value.grad_fn is None else [value.grad_fn])


def _behind(given: Iterable[Node]) -> set[Node]:
    """Nodes, and all that their results were computed by."""
    found: set[Node] = set()
    ahead = list(given)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += [before for before, _ in node.next_functions if before is not None]
    return found


def rounding(found: Iterable[Node]) -> float:
    """The largest relative rounding error among the dtypes of a graph; 0 without any.

    Inside ``torch.autocast`` it is not that of parameters and value.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> rounding(nodes(w.sum())), rounding(nodes(w.bfloat16().sum().double()))
        (1.1920928955078125e-07, 0.0078125)
    """
    made = (part for node in found for part in node._input_metadata)  # noqa: SLF001 - no other name
    return max((torch.finfo(dtype).eps for dtype in {m.dtype for m in made}), default=0)


def check_complete(name: str, found: set[Node]) -> None:
    """Refuse a graph in which gradients of parameters would be missing.

    Raises:
        InvalidProblemError: A part of it is recomputed by a backward pass of its own.

    Example:
        >>> import torch
        >>> check_complete("risk", nodes(torch.ones(2, requires_grad=True).sum()))
    """
    if all(type(node).__name__ != REENTRANT for node in found):
        return
    message = (
        f"{name!r} goes through torch.utils.checkpoint with use_reentrant=True, which "
        "hides the parameters in it: their gradients would seem to be zero. Pass "
        "use_reentrant=False; for a model of transformers, model."
        'gradient_checkpointing_enable({"use_reentrant": False}).'
    )
    raise InvalidProblemError(message)


def check_fresh(
    name: str, once: set[Node], twice: set[Node], parameters: Sequence[Tensor]
) -> None:
    """Refuse a value that stays what it was, wherever the parameters go.

    Args:
        name: Of the term.
        once: The graph of its value.
        twice: That of its value in another call.
        parameters: That move.

    Raises:
        InvalidProblemError: The graphs share a result that depends on a parameter.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> doubled = 2 * w
        >>> check_fresh("a", nodes(w.sum()), nodes(w.sum()), [w])
        >>> check_fresh("a", nodes(doubled.sum()), nodes(doubled.sum()), [w])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: The function of 'a' uses a tensor that...
    """
    ours = {id(p) for p in parameters}
    kept = [n for n in once & twice if not VIEW.fullmatch(type(n).__name__)]
    computed = _behind(node for node in kept if _leaf(node) is None)
    if all(id(_leaf(node)) not in ours for node in computed):
        return
    message = (
        f"The function of {name!r} uses a tensor that was computed from the parameters "
        "before it was called, and keeps the value that it had then, however they "
        "move; what split, chunk and unbind made cannot even be used once they have. "
        "Compute it inside of the function: lambda: (b @ a).norm(), not product "
        "= b @ a before it. The weight of a layer that torch.nn.utils.prune, or its "
        "older weight_norm or spectral_norm, has changed is such a tensor too: write "
        "layer.weight_orig * layer.weight_mask, or use torch.nn.utils.parametrizations."
    )
    raise InvalidProblemError(message)


def _leaf(node: Node) -> Tensor | None:
    """The tensor whose gradient a node accumulates, if it is such a node."""
    leaf = getattr(node, "variable", None)
    return leaf if isinstance(leaf, Tensor) else None
