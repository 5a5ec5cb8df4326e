"""Which of its iterates a method returns: the last, their average, or a random one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch

from oneproj.errors import InvalidProblemError
from oneproj.parameters import Vector, assign, on_devices, snapshot
from oneproj.schema import AbstractSchema, EmptyOr, Fields, Number
from oneproj.tensor_schema import vector_like

Rule = Literal["last", "average", "random"]
RULES: tuple[Rule, ...] = get_args(Rule)


class Answer:
    """One copy of the parameters, kept up to date as iterates are offered.

    - ``"last"``: the last one offered.
    - ``"average"``: ``sum_k a_k x_k / sum_k a_k`` with the weights a_k of the offers.
    - ``"random"``: x_k with probability ``a_k / sum_i a_i``. How many offers will come
      need not be known: the k-th replaces what is kept with probability
      ``a_k / (a_1 + ... + a_k)`` (reservoir sampling).

    Args:
        parameters: Hold the iterate whenever one is offered.
        rule: Which to keep.
        generator: Draws, for ``"random"``.
        rules: Those that the method has a use for.

    Raises:
        InvalidProblemError: The rule is none of them.

    Example:
        >>> w = torch.tensor([1.0])
        >>> answer = Answer([w], "average", torch.Generator())
        >>> answer.offer(1.0); _ = w.fill_(4.0); answer.offer(2.0); _ = w.zero_()
        >>> answer.show(); w.item()                     # (1 * 1 + 2 * 4) / 3
        3.0
    """

    def __init__(
        self,
        parameters: Vector,
        rule: Rule,
        generator: torch.Generator,
        *,
        rules: Sequence[Rule] = RULES,
    ) -> None:
        """Nothing is kept before the first offer."""
        if rule not in rules:
            known = ", ".join(map(repr, rules))
            message = f"select must be one of {known}, got {rule!r}."
            raise InvalidProblemError(message)
        self._parameters, self._rule, self._generator = parameters, rule, generator
        self._kept: list[torch.Tensor] = []
        self._total = 0.0

    @torch.no_grad()
    def offer(self, weight: float = 1.0) -> None:
        """Offer the iterate that the parameters hold now."""
        self._total += weight
        if not self._kept:
            self._kept = snapshot(self._parameters)
            return
        share = weight / self._total if self._total > 0 else 0.0
        if self._rule == "average":
            torch._foreach_lerp_(self._kept, list(self._parameters), share)
        elif self._rule == "last" or self._draw() < share:
            assign(self._kept, self._parameters)

    def show(self) -> None:
        """Make the parameters hold the answer; they stay if nothing was offered."""
        if self._kept:
            assign(self._parameters, self._kept)

    def state_dict(self) -> dict[str, Any]:
        """What is kept, and the weight behind it."""
        return {"kept": self._kept, "total": self._total}

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        kept = EmptyOr(vector_like(self._parameters))
        return Fields({"kept": kept, "total": Number(least=0.0, finite=True)})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        kept = state["kept"]  # nothing before the first offer
        self._kept = on_devices(kept, self._parameters) if kept else []
        self._total = state["total"]

    def _draw(self) -> float:
        return float(
            torch.rand((), generator=self._generator, dtype=torch.float64, device="cpu")
        )
