"""What backward passes and steps do with a penalty in a loop of the user's own.

A penalty that is added to a loss is one part of what a step finds in ``.grad``. How
large a part, hooks tell: one on the penalty receives the gradient that it gets (1, the
scale of a ``GradScaler``, a part under accumulation), and hooks on the parameters note
how long their gradients are after a pass, which clipping and unscaling change before
the step. Nothing that the hooks see is changed.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


@dataclass
class _Passes:
    """The backward passes since the last step."""

    received: float = 0.0
    """The sum of the gradients that reached the penalty."""
    pushes: dict[str, float] = field(default_factory=dict)
    """For each constraint, the sum of those gradients times its weight."""
    lengths: dict[int, Tensor] = field(default_factory=dict)
    """By number of a parameter, the norm of its gradient after the last pass."""


class BackwardWatch:
    """Watches an optimiser and its parameters until ``close()``.

    Args:
        optimizer: Whose steps are watched.
        parameters: That it moves.
        before_step: A method, called before each step; if its object is gone, nothing.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> class Loop:
        ...     def before_step(self): self.share = watch.take()
        >>> loop, sgd = Loop(), torch.optim.SGD([w], lr=0.1)
        >>> watch = BackwardWatch(sgd, [w], loop.before_step)
        >>> part = torch.tensor(0.0, requires_grad=True)
        >>> watch.follow(part, {"cap": 2.0})
        >>> (8.0 * (w.sum() + part)).backward()
        >>> w.grad /= 4.0                               # clipped
        >>> sgd.step(); loop.share                      # 8 / 4, and the weight
        (2.0, {'cap': 2.0})
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Sequence[Tensor],
        before_step: Callable[[], None],
    ) -> None:
        """Register the hooks."""
        self._parameters, self._passes = list(parameters), _Passes()
        self._before_step = weakref.WeakMethod(before_step)
        self._handles: list[Any] = [
            p.register_post_accumulate_grad_hook(self._noting(number))  # type: ignore[no-untyped-call]
            for number, p in enumerate(self._parameters)
        ]
        self._handles.append(optimizer.register_step_pre_hook(self._on_step))

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def forget(self) -> None:
        """Forget the passes since the last step."""
        self._passes = _Passes()

    def follow(self, part: Tensor, weights: Mapping[str, float]) -> None:
        """Note what a part of the loss receives, which has these weights in it."""

        def note(gradient: Tensor) -> None:
            if self._passes.lengths and not self._has_gradient():
                self.forget()  # zero_grad() without a step: a GradScaler skipped it
            received = gradient.item()
            self._passes.received += received
            for name, weight in weights.items():
                pushed = self._passes.pushes.get(name, 0.0)
                self._passes.pushes[name] = pushed + received * weight

        part.register_hook(note)  # type: ignore[no-untyped-call]  # torch's own

    def take(self) -> tuple[float, dict[str, float]] | None:
        """Return how much of the penalty the step finds, and the mean weights in it.

        None if no pass reached the penalty. The next pass begins anew.
        """
        passes = self._passes
        shrinking = self._shrinking()
        self.forget()
        if passes.received <= 0:
            return None
        weights = {n: pushed / passes.received for n, pushed in passes.pushes.items()}
        return passes.received * shrinking, weights

    def _noting(self, number: int) -> Callable[[Tensor], None]:
        @torch.no_grad()
        def note(parameter: Tensor) -> None:
            if parameter.grad is not None:
                self._passes.lengths[number] = _length(parameter.grad)

        return note

    def _has_gradient(self) -> bool:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return any(bool(gradient.to_dense().any()) for gradient in gradients)

    @torch.no_grad()
    def _shrinking(self) -> float:
        """Return what the step finds of the gradient, as a share of what passes left.

        Clipping by norm and a ``GradScaler`` multiply all gradients by one number.
        """
        before = _total(list(self._passes.lengths.values()))
        found = [self._parameters[number].grad for number in self._passes.lengths]
        after = _total([_length(part) for part in found if part is not None])
        return after / before if before > 0 else 1.0

    def _on_step(
        self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Call back now, or once the step has called its closure.

        Returns:
            The arguments of the step, the closure replaced; None to leave them.
        """
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._call()
            return None

        def observed() -> object:
            loss = closure()
            self._call()
            return loss

        return args[:1], {**kwargs, "closure": observed}

    def _call(self) -> None:
        before_step = self._before_step()
        if before_step is not None:
            before_step()


def _length(gradient: Tensor) -> Tensor:
    """Return the norm of a gradient, as a tensor: nothing waits for it."""
    dense = gradient.to_dense()
    wide = torch.promote_types(dense.dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(dense, dtype=wide)
    return length


def _total(lengths: Sequence[Tensor]) -> float:
    """Return the norm of all these together."""
    if not lengths:
        return 0.0
    place = lengths[0].device
    stacked = torch.stack([length.double().to(place) for length in lengths])
    total = float(stacked.norm())
    return total if math.isfinite(total) else math.nan
