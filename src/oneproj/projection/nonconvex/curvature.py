"""The curvature of the constraints, estimated from the gradients already seen.

BFGS for ``I + sum_j mu_j hess c_j``, the Hessian of the projection problem's
Lagrangian. A pair keeps the change of every constraint's gradient along a move, so
that old moves count for the present multipliers, not for those of their time. All
pairs are applied at once, by the compact form of Byrd, Nocedal and Schnabel (1994).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.linalg.blas import dtrsm

from oneproj.schema import check_names, check_range, check_tensor
from oneproj.vectors.arithmetic import Array

LEAST = 0.2
"""The estimate has at least this curvature along each move; without constraints it
would be 1. This keeps it positive definite where the constraints bend down."""


class Curvature:
    """The most recent moves and what they did to the gradients.

    Example:
        >>> curvature = Curvature(memory=5)
        >>> curvature.add(np.array([2.0, 0.0]), np.array([[6.0, 0.0]]))
        >>> curvature.divide(np.eye(2), np.array([1.0])).tolist()  # 1 + 3 along it
        [[0.25, 0.0], [0.0, 1.0]]
    """

    def __init__(self, memory: int) -> None:
        """Keep at most ``memory`` moves."""
        self._memory = memory
        self._S: Array = np.zeros((0, 0))
        self._Y: Array = np.zeros((0, 0))
        """A row has the changes of one constraint's gradient, move after move."""
        self.moves = 0
        """How many are kept."""

    def add(self, move: Array, change: Array) -> None:
        """Remember a move and the change of each gradient, one row a constraint."""
        if self._memory == 0:
            return
        if self.moves == len(self._S):
            self._make_room(change.shape)
        k, length = self.moves, math.sqrt(move.dot(move))
        # Moves of unit length: the estimate is the same, the sums are in scale.
        n = len(move)
        self._S[k], self._Y[:, k * n : (k + 1) * n] = move / length, change / length
        self.moves += 1

    def divide(self, rows: Array, mu: Array) -> Array:
        """The rows times the inverse of the estimate for multipliers mu."""
        k = self.moves
        if k == 0:
            return rows
        S = self._S[:k]
        bent = mu.dot(self._Y).reshape(self._S.shape)[:k]
        Y = S + bent
        R = S.dot(Y.T)  # of which the upper triangle is read
        curvature = R.diagonal()
        if min(curvature.tolist()) < LEAST:
            # Where the constraints bend down too much, only a share of it counts.
            share = (1.0 - LEAST) / (1.0 - np.minimum(curvature, LEAST))
            Y = S + share[:, None] * bent
            R = S.dot(Y.T)
            curvature = R.diagonal()
        # (I + B)^{-1} = I + S'R^{-T}(D + YY')R^{-1}S - S'R^{-T}Y - Y'R^{-1}S
        # By dtrsm: dtrtrs wakes threads even for a dozen rows, which then spin.
        along = dtrsm(1.0, R.T, S.dot(rows.T), lower=1, trans_a=1)
        right = Y.dot(Y.T.dot(along) - rows.T) + curvature[:, None] * along
        back = dtrsm(1.0, R.T, right, lower=1)
        divided: Array = rows - along.T.dot(Y) + back.T.dot(S)
        return divided

    def state(self) -> dict[str, Any]:
        """The moves and changes as plain data, with the room that there is for more."""
        S, Y = torch.from_numpy(self._S.copy()), torch.from_numpy(self._Y.copy())
        return {"moves": self.moves, "S": S, "Y": Y}

    def load_state(
        self, state: Mapping[str, Any], constraints: int, dimension: int
    ) -> None:
        """Go on with the moves of such a state, in so many dimensions."""
        check_names(state, "curvature", ("moves", "S", "Y"))
        check_tensor(state["S"], "curvature.S", (None, None), torch.float64)
        room = check_range(len(state["S"]), "moves", 0, self._memory)
        m, n = (constraints, dimension) if room else (0, 0)
        check_range(state["moves"], "moves", 0, room)
        check_tensor(state["S"], "curvature.S", (room, n), torch.float64)
        check_tensor(state["Y"], "curvature.Y", (m, room * n), torch.float64)
        self.moves = state["moves"]
        self._S, self._Y = (np.array(state[name].numpy()) for name in ("S", "Y"))

    def _make_room(self, shape: tuple[int, ...]) -> None:
        """Twice the room, up to the memory; then the oldest move leaves."""
        k, (m, n) = self.moves, shape
        if k == self._memory:
            self._S[:-1] = self._S[1:]
            self._Y[:, :-n] = self._Y[:, n:]
            self.moves -= 1
            return
        room = min(self._memory, max(2 * k, 8))
        moves, changes = np.zeros((room, n)), np.zeros((m, room * n))
        if k:
            moves[:k], changes[:, : k * n] = self._S, self._Y
        self._S, self._Y = moves, changes
