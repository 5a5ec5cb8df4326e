"""The numbers of cuts in arrays: a solution over all of them is a few operations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from oneproj.schema import (
    check_list,
    check_names,
    check_range,
    check_tensor,
    require,
)
from oneproj.vectors.arithmetic import Array

Indices: TypeAlias = NDArray[np.intp]
ROOM = 16
"""Cuts to make room for at first."""


class CutTable:
    """Halfspaces ``<g, d> <= offset`` with unit normals g, one entry of each array per.

    The arrays are what they are called by until a cut comes or goes.

    Example:
        >>> cuts = CutTable()
        >>> cuts.append((3.0, 0.0, 1.0, 0.0, 0.0, 0.5), {"a": 1.0}, np.zeros(0))
        >>> cuts.offset.tolist(), cuts.z.tolist(), cuts.names, cuts.gram.tolist()
        ([3.0], [0.5], ['a'], [[1.0]])
    """

    def __init__(self) -> None:
        """Start without cuts."""
        self.count = 0
        self.names: list[str] = []
        """Of the constraints that the cuts are from."""
        self._facts: Array = np.zeros((6, ROOM))
        self._owner: Indices = np.zeros(ROOM, dtype=np.intp)
        self._worth: Array = np.zeros((0, ROOM))
        self._gram: Array = np.zeros((ROOM, ROOM))

    @property
    def offset(self) -> Array:
        """How far away the halfspace ends."""
        return self._facts[0, : self.count]

    @property
    def level(self) -> Array:
        """``<g, d>`` at the center, the displacement the next step is made from."""
        return self._facts[1, : self.count]

    @property
    def length(self) -> Array:
        """Of the vector that is kept in place of the unit normal."""
        return self._facts[2, : self.count]

    @property
    def blur(self) -> Array:
        """By how much rounding may have moved it: from far away that of far points."""
        return self._facts[3, : self.count]

    @property
    def idle(self) -> Array:
        """In how many solutions in a row it did not bind."""
        return self._facts[4, : self.count]

    @property
    def z(self) -> Array:
        """The dual solution."""
        return self._facts[5, : self.count]

    @property
    def worth(self) -> Array:
        """What a unit of z is worth in multipliers, one row per name."""
        return self._worth[:, : self.count]

    @property
    def gram(self) -> Array:
        """The products of the unit normals."""
        return self._gram[: self.count, : self.count]

    @property
    def owner(self) -> Indices:
        """The place among the names of the constraint it is of; -1 for a mixture."""
        return self._owner[: self.count]

    def append(
        self, facts: tuple[float, ...], worth: Mapping[str, float], products: Array
    ) -> None:
        """Add a cut.

        Args:
            facts: Offset, level, length, blur, idle and z.
            worth: Of a unit of z, by the constraint's name.
            products: With the unit normals so far.
        """
        n = self.count
        if n == len(self._gram):
            self._make_room(2 * n)
        self._facts[:, n], self._worth[:, n] = facts, 0.0
        for name, weight in worth.items():
            if name not in self.names:
                self.names.append(name)
                grown = np.zeros((len(self.names), len(self._gram)))
                grown[:-1] = self._worth
                self._worth = grown
            self._worth[self.names.index(name), n] = weight
        self._owner[n] = self.names.index(next(iter(worth))) if len(worth) == 1 else -1
        self._gram[n, :n] = self._gram[:n, n] = products
        self._gram[n, n] = 1.0
        self.count += 1

    def remove(self, i: int) -> None:
        """Drop a cut; those after it move up."""
        n = self.count
        for table in (self._facts, self._worth, self._gram, self._gram.T):
            table[:, i : n - 1] = table[:, i + 1 : n]
        self._owner[i : n - 1] = self._owner[i + 1 : n]
        self.count -= 1

    def state(self) -> dict[str, Any]:
        """All of it as plain data; the room is kept, as sums may depend on it."""
        tables = {"facts": self._facts, "owner": self._owner, "worth": self._worth}
        arrays = {
            name: torch.from_numpy(np.ascontiguousarray(table[..., : self.count]))
            for name, table in tables.items()
        }
        gram = torch.from_numpy(self.gram.copy())
        return {"room": len(self._gram), "names": self.names, "gram": gram, **arrays}

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], names: Collection[str], most: int
    ) -> CutTable:
        """The table of such a state, of at most so many cuts of these names.

        While a cut is exchanged there is one more, and room is doubled.
        """
        table = cls()
        check_names(state, "cuts", ("room", "names", "gram", "facts", "owner", "worth"))
        check_range(state["room"], "room", ROOM, 4 * max(most, ROOM))
        check_list(state["names"], "names", 0, len(names))
        for name in state["names"]:
            require(name in names, name, "cuts.names", f"one of {', '.join(names)}")
        check_tensor(state["gram"], "gram", (None, None), torch.float64)
        n, m = len(state["gram"]), len(state["names"])
        check_range(n, "the number of cuts", 0, state["room"])
        for name, rows in ("gram", n), ("facts", 6), ("worth", m):
            check_tensor(state[name], name, (rows, n), torch.float64)
        check_tensor(state["owner"], "owner", (n,), torch.int64, within=(-1, m - 1))
        table.count = n
        room, table.names = state["room"], list(state["names"])
        table._facts, table._gram = np.zeros((6, room)), np.zeros((room, room))
        table._worth = np.zeros((len(table.names), room))
        table._owner = np.zeros(room, dtype=np.intp)
        for name, own in (
            ("facts", table._facts),
            ("owner", table._owner),
            ("worth", table._worth),
            ("gram", table.gram),
        ):
            own[..., :n] = state[name].numpy()
        return table

    def _make_room(self, room: int) -> None:
        n = self.count
        facts, worth = np.zeros((6, room)), np.zeros((len(self.names), room))
        gram = np.zeros((room, room))
        facts[:, :n], worth[:, :n], gram[:n, :n] = self._facts, self._worth, self._gram
        self._facts, self._worth, self._gram = facts, worth, gram
        self._owner = np.resize(self._owner, room)
