"""A deck of examples: dealt without repetition, shuffled anew when it runs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oneproj.schema import AbstractSchema, Fields, Integer, Maybe
from oneproj.tensor_schema import TensorSchema
from oneproj.terms.base import AbstractTerm

LARGEST = 10**7
"""Examples of which a permutation is kept, 80 MB. Of more the draws are independent:
hardly any would repeat."""


class Deck:
    """Deals the minibatches of a term so that an epoch sees no example twice.

    Every minibatch is uniform by itself, so its mean is unbiased, and together those of
    an epoch leave little to chance: what one has too much of, the others have not. The
    theorems assume independent draws instead; those are ``term.draw``.

    Args:
        term: What to sample.
        batch_size: Examples of a minibatch; all of them where there are no more.
        generator: Shuffles.

    Example:
        >>> import oneproj
        >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
        >>> deck = Deck(risk, 2, torch.Generator().manual_seed(0))
        >>> sorted(torch.cat([deck.deal() for _ in range(3)]).tolist())
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self, term: AbstractTerm, batch_size: int, generator: torch.Generator
    ) -> None:
        """Start with nothing dealt; the first deal shuffles."""
        self._term, self._batch_size, self._generator = term, batch_size, generator
        self._cards: Tensor | None = None
        self._dealt = 0

    def deal(self) -> Tensor | None:
        """Indices of the next minibatch; None for all data, or where there is none."""
        n, b = self._term.size, self._batch_size
        if n is None or n > LARGEST:
            return self._term.draw(b, self._generator)
        if n <= b:
            return None
        if self._cards is None or self._dealt + b > n:
            self._cards = torch.randperm(n, generator=self._generator, device="cpu")
            self._dealt = 0
        self._dealt += b
        return self._cards[self._dealt - b : self._dealt]

    def state_dict(self) -> dict[str, Any]:
        """The deck as it lies, and how much of it was dealt."""
        return {"cards": self._cards, "dealt": self._dealt}

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        n = self._term.size or 0
        cards = TensorSchema((n,), torch.int64, least=0, most=n - 1)
        return Fields({"cards": Maybe(cards), "dealt": Integer(least=0, most=n)})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state.

        Example:
            >>> import oneproj
            >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
            >>> first, second = (Deck(risk, 2, torch.Generator()) for _ in range(2))
            >>> _ = first.deal(); second.load_state_dict(first.state_dict())
            >>> torch.equal(first.deal(), second.deal())
            True
        """
        self._cards, self._dealt = state["cards"], state["dealt"]
