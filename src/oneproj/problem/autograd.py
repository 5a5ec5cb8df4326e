"""What a gradient needs of torch: a mode that records, and tensors that were recorded.

``torch.no_grad()`` around a call does no harm: gradients are switched on where they are
taken. ``torch.inference_mode()`` cannot be left from inside, and what is made in it can
never be differentiated. Inside ``torch.autocast`` and ``parametrize.cached`` parameters
that move are seen as they were, unless the cache is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.utils import parametrize
from torch.overrides import has_torch_function

from oneproj.errors import InvalidProblemError

try:
    from torch.autograd.graph import _engine_run_backward as _run_backward
except ImportError:  # it is private: another torch may not have it
    _run_backward = None  # type: ignore[assignment]


def require_autograd(
    parameters: Iterable[Tensor] = (), *, built: str = "Problem"
) -> None:
    """Refuse to go on where gradients would be missing, and so seem to be zero.

    Args:
        parameters: That move.
        built: What they were handed to.

    Raises:
        InvalidProblemError: ``torch.inference_mode()`` is on, or a parameter was made
            in it, or is frozen by now.

    Example:
        >>> require_autograd([torch.ones(2, requires_grad=True)])
    """
    if torch.is_inference_mode_enabled():
        message = (
            "This was called inside torch.inference_mode(), where nothing can be "
            "differentiated: every gradient would be missing, or seem to be zero. Call "
            "it outside of that block; torch.no_grad() does no harm."
        )
        raise InvalidProblemError(message)
    for tensor in parameters:
        if tensor.is_inference():
            message = (
                f"A parameter of shape {tuple(tensor.shape)} was made inside "
                "torch.inference_mode(), so nothing that depends on it can be "
                "differentiated. Build or load the model outside of that block."
            )
            raise InvalidProblemError(message)
        if not tensor.requires_grad:
            message = (
                f"A parameter of shape {tuple(tensor.shape)} was frozen after the "
                f"{built.lower()} was built: it has requires_grad=False by now, and no "
                "gradient reaches it. Turn requires_grad on again, or build a new "
                f"{built}, in which it is a constant."
            )
            raise InvalidProblemError(message)


@contextmanager
def fresh_casts() -> Iterator[None]:
    """See parameters as they are, also where torch keeps what it made of them before.

    ``torch.autocast`` keeps the low-precision copy of a parameter until its own block
    ends, ``torch.nn.utils.parametrize.cached`` the value of a parametrisation. What was
    changed in place meanwhile would be seen as it was: a point judged by another.

    Example:
        >>> layer = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.ones_(layer.weight)
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     before = layer(torch.ones(1)).item()
        ...     _ = torch.nn.init.zeros_(layer.weight)
        ...     kept = layer(torch.ones(1)).item()
        ...     with fresh_casts():
        ...         before, kept, layer(torch.ones(1)).item()
        (1.0, 1.0, 0.0)
    """
    enabled = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        with fresh_parametrisations():
            yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


@contextmanager
def fresh_parametrisations() -> Iterator[None]:
    """Compute parametrised weights anew, also inside ``parametrize.cached``.

    What is kept there belongs to another point or, used twice, to a graph that is gone.

    Example:
        >>> with parametrize.cached(), fresh_parametrisations():
        ...     parametrize._cache_enabled
        0
    """
    depth, parametrize._cache_enabled = parametrize._cache_enabled, 0  # noqa: SLF001 - no other name
    try:
        yield
    finally:
        parametrize._cache_enabled = depth  # noqa: SLF001 - as above
        parametrize._cache.clear()  # noqa: SLF001 - as above


def check_real(name: str, value: Tensor) -> Tensor:
    """Refuse values without a gradient: whole numbers, truth values, complex ones.

    Example:
        >>> check_real("risk", torch.ones(1))
        tensor([1.])
    """
    if value.is_floating_point():
        return value
    message = (
        f"The function of {name!r} returned values of dtype {value.dtype}, but only "
        "real floating-point ones can be optimised. A count or an accuracy has no "
        "gradient: use a surrogate, such as a sigmoid of the score. Of a complex value "
        "take the real part or the absolute value."
    )
    raise InvalidProblemError(message)


def add_gradient(
    values: Sequence[Tensor], weights: Sequence[float], parameters: Sequence[Tensor]
) -> None:
    """Add the gradient of ``sum_j w_j v_j`` to ``.grad``, by one backward pass.

    To that of these parameters only: other leaves of the graph are not ours. What is in
    ``.grad`` afterwards is dense.

    It is ``torch.autograd.backward`` without its questions about what it is given,
    which take a fifth of the time of a small model's backward pass.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> add_gradient([w.sum(), w[0]], [3.0, 1.0], [w]); w.grad.tolist()
        [4.0, 3.0]
    """
    seeds = [torch.full_like(v, w) for v, w in zip(values, weights, strict=True)]
    own = has_torch_function((*values, *parameters))  # a subclass may have its own way
    if own or _run_backward is None:
        torch.autograd.backward(values, seeds, inputs=parameters)
    else:
        _run_backward(
            tuple(values),
            tuple(seeds),
            False,  # noqa: FBT003 - the engine has no names for it: keep no graph
            False,  # noqa: FBT003 - make none of the gradient
            tuple(parameters),
            allow_unreachable=True,
            accumulate_grad=True,
        )
    densify(parameters)


def densify(parameters: Iterable[Tensor]) -> None:
    """Make sparse gradients dense, as norms, anchors and averages need them.

    ``torch.nn.Embedding(sparse=True)`` leaves them in ``.grad``.

    Example:
        >>> table = torch.nn.Embedding(3, 2, sparse=True)
        >>> table(torch.tensor([1])).sum().backward()
        >>> densify(table.parameters()); table.weight.grad.tolist()
        [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """
    for p in parameters:
        gradient = p.grad
        if gradient is not None and gradient.is_sparse:
            p.grad = gradient.to_dense()


@contextmanager
def borrowing_gradients(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Let others use ``.grad`` for a while; afterwards it is what it was.

    No copy is made, so what is there must be replaced and not written into.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> with borrowing_gradients([w]):
        ...     w.sum().backward()
        >>> w.grad is None
        True
    """
    kept = [(p, p.grad) for p in parameters]
    for p, _ in kept:
        p.grad = None
    try:
        yield
    finally:
        for p, gradient in kept:
            p.grad = gradient
