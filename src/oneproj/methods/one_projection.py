"""Algorithm 1: the penalized proximal subgradient method with one projection.

Problem: ``min f(x)`` subject to ``g(x) <= 0``, inside a ball B (eq. problem).

Pseudocode, with the paper's line numbers::

     1  for t = 0, ..., T-1:
     2      H_t(z) = f(z) + p(g(z)) + beta/2 |z - x_t|^2
     3      x_{t+1} = PSM(H_t, x_t)
     5  draw J uniformly from the index set I
     6  return a nearest point of {g <= 0} to x_J
     7  PSM(H, x):
     8      z_1 = x
     9      for s = 1, ..., K:
    10          eta_s = 2 / (m (s + 1));  v_s = stochastic subgradient of f at z_s
    11          h_s = v_s + beta (z_s - x) + subgradient of p(g) at z_s
    12          z_{s+1} = P_B(z_s - eta_s h_s)
    14      return (z_1 + ... + z_K) / K

Guarantee: with the schedules of ``oneproj.theory`` and p, beta, m as they say, the
projection of ``x_J`` is feasible and, with probability at least 2/3, its projected-
gradient mapping (Theorem 1) or Moreau residual (Theorem 2) is at most epsilon, or it
lies within 2 epsilon / beta of an epsilon-KKT point (Theorem 3).

Deviations from the paper, all of them; no theorem covers 3, 4, 6, 9, 11-13:

1. Line 6 is not here: ``oneproj.project`` (or ``solve``, once) makes it.
2. ``v_s`` plus the penalty's subgradient is what ``backward()`` left in ``.grad``.
3. ``lr`` may replace ``2 / (m (s + 1))``: a constant, or what a
   ``torch.optim.lr_scheduler`` makes of it.
4. ``select="last"`` returns ``x_T`` in place of ``x_J``, as the paper's experiments do.
5. J is drawn before the run, not after, so that one copy of ``x_J`` is enough. J is
   independent of the trajectory either way.
6. ``base`` may replace the plain subgradient step of lines 11-12 by another optimiser
   of ``torch.optim``. The pull ``beta (z - x)`` then acts outside it, as decoupled
   weight decay does; for plain SGD both are the same step.
7. The mean of line 14 is a running mean, in the parameters' precision: no sum can
   overflow, but K must stay well below 1/eps of the dtype (a warning says so).
8. B may have any radius and centre, or none; the theorems' unit ball is a matter of
   scale (``theory.schedules``). A start outside B is projected onto it, with a warning.
9. ``inner_steps=1`` and ``prox_weight=0`` are allowed.
10. Frozen parameters are constants: they are not part of x, z or B. Who moves is
    settled when the optimiser is built: one that is frozen later is refused, and a
    warning names one that is thawed later (``checks``).
11. ``late_weight = q > 0`` weighs ``z_s`` by about ``s^q`` in line 14 (polynomial-decay
    averaging; Shamir and Zhang, 2013): the centre trails the inner iterates less. It is
    3, and ``base`` is Adam, unless ``strong_convexity`` asks for the theorems' steps.
12. At the edge of B a ``base`` other than SGD sees the gradient without its pull
    outwards, in ``.grad`` as well: ``base_steps`` says why.
13. After an iterate that is not finite, which is an error, line 8 comes again
    (``nested``, as all else that is not in the paper).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from oneproj.arguments import check_number
from oneproj.methods.base_steps import choose_base, step_in_ball_
from oneproj.methods.checks import (
    POWER,
    PULL,
    RADIUS,
    THEOREM,
    Groups,
    Select,
    Watch,
    check_inner_steps,
    check_precision,
    check_pull,
    check_rates,
    draw_index,
    keep_moving,
    make_base,
    move_start_into_ball,
)
from oneproj.methods.nested import AbstractNested, Position
from oneproj.problem.trainable import as_center

LATE_WEIGHT = 3.0
"""How much later inner iterates count for. Source: ``benchmarks/NOTES.md``."""


class OneProjection(AbstractNested):
    """Lines 1-5 and 7-14 of Algorithm 1 as a ``torch.optim.Optimizer``.

    One ``step()`` is one inner update (lines 10-12) with the gradient of
    ``f + p(g)`` in ``.grad``; every ``inner_steps``-th step closes an outer iteration
    and starts the next by itself. ``eval()`` makes the parameters hold the selected
    outer iterate, ``train()`` the inner iterate again. The state is the centre
    ``x_t`` and the running average; random selection adds ``x_J``.

    Args:
        params: Tensors or parameter groups; all groups share one ball.
        lr: The step size eta, a constant unless a scheduler changes it. It may be left
            out where every group has its own.
        strong_convexity: m. Given in place of ``lr``, the step is 2 / (m (s + 1)),
            whatever a scheduler says.
        prox_weight: beta, the pull towards the centre ``x_t``; 0.02 as in ``solve``.
            Without ``strong_convexity``, ``lr * prox_weight`` must not exceed 1: a step
            would overshoot the centre.
        inner_steps: K >= 1, 10 when left out. With K = 1 the centre never moves, as
            line 14 has it.
        late_weight: q >= 0; the mean of line 14 weighs z_s by about s^q. None for 3 as
            in ``solve``, or 0 with ``strong_convexity``, as the theorems have it.
        radius: Of the ball B; infinite for none.
        center: Of the ball B, one tensor per parameter; None is the origin.
        base: Makes the optimiser of lines 11-12 from parameter groups. None for Adam
            with ``betas=(0.9, 0.95)`` as in ``solve``, or plain SGD with
            ``strong_convexity``.
        select: ``"last"`` for x_T, ``"random"`` for x_J.
        outer_steps: T, needed by ``select="random"``.
        first_index: 1 for I = {1..T} (convex), 0 for I = {0..T-1} (nonconvex).
        generator: Draws J; needed by ``select="random"``.

    Example:
        >>> w = torch.tensor([1.0], requires_grad=True)
        >>> paper = {"base": torch.optim.SGD, "late_weight": 0.0}
        >>> opt = OneProjection([w], lr=0.1, prox_weight=0.2, inner_steps=2, **paper)
        >>> for _ in range(4):
        ...     opt.zero_grad()
        ...     w.square().sum().backward()
        ...     opt.step()
        >>> opt.eval()          # x_2: z = 1, 0.8, their mean 0.9; then 0.9, 0.72
        >>> round(w.item(), 6)
        0.81
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | None = None,
        *,
        prox_weight: float = 0.02,
        inner_steps: int = 10,
        late_weight: float | None = None,
        strong_convexity: float | None = None,
        radius: float = math.inf,
        center: Sequence[Tensor] | None = None,
        base: Callable[[Groups], Optimizer] | None = None,
        select: Select = "last",
        outer_steps: int | None = None,
        first_index: Literal[0, 1] = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        """Check the settings, put x_0 into the ball and draw J."""
        m, theorem = strong_convexity, THEOREM
        self._m = None if m is None else check_number("strong_convexity", m, theorem)
        self._beta = check_number("prox_weight", prox_weight, PULL, zero=True)
        self._K = check_inner_steps(inner_steps)
        if late_weight is None:
            late_weight = LATE_WEIGHT if m is None else 0.0
        self._q = check_number("late_weight", late_weight, POWER, zero=True)
        self._radius = check_number("radius", radius, RADIUS, infinite=True)
        super().__init__(params, {"lr": lr})
        check_rates(self.param_groups, self._m)
        for group in self.param_groups:
            group["prox_weight"] = self._beta
            if self._m is None:
                check_pull(group["lr"], self._beta)
        self._z, frozen = keep_moving(self.param_groups)
        self._watch = Watch(self._z, frozen)
        self._center = as_center(center, self._z)
        check_precision(self._K, self._z)
        move_start_into_ball(self._z, self._radius, self._center)
        if base is None:
            base = choose_base("adam") if m is None else SGD
        self._base = make_base(base, self.param_groups)  # shared groups, so one lr
        # What schedulers ask for: the momentum that they cycle is the base's.
        self.defaults = self._base.defaults | {"lr": self.param_groups[0]["lr"]}
        drawn = draw_index(select, outer_steps, first_index, generator)  # line 5
        self._at = Position(t=0, s=1, J=drawn)
        for p in self._z:  # line 8
            self.state[p] = {"x": p.detach().clone(), "average": p.detach().clone()}
        self._bind()
        self._keep_if_selected()

    def _inner_update(self) -> None:
        """Lines 10-12 for one s; the K-th closes the outer iteration."""
        at, s, q = self._at, self._at.s, self._q
        # Line 14 as a running mean: for q = 0 the share of z_s is 1/s.
        torch._foreach_lerp_(self._average, self._z, (1.0 + q) / (s + q))
        for group, x in zip(self.param_groups, self._x_of, strict=True):
            beta = group["prox_weight"]
            if self._m is not None:
                group["lr"] = 2.0 / (self._m * (s + 1))  # line 10
            else:
                check_pull(group["lr"], beta)  # a scheduler may have raised lr
            if x:  # line 11, the pull: z - eta beta (z - x)
                torch._foreach_lerp_(group["params"], x, group["lr"] * beta)
        # Lines 11-12, the rest: P_B(z - eta v), with v in .grad.
        ball = self._radius, self._center
        outside = step_in_ball_(self.base, self._z, *ball, touched=at.touched)
        self._require_finite(outside)
        at.touched |= outside > 0
        at.s = s + 1
        if s == self._K:
            self._outer_update()

    def _outer_update(self) -> None:
        torch._foreach_copy_(self._x, self._average)  # line 3: x_{t+1}
        torch._foreach_copy_(self._z, self._average)  # line 8: z_1
        self._at.t, self._at.s = self._at.t + 1, 1
        self._keep_if_selected()

    def _keep_if_selected(self) -> None:
        # Deviation 5: J is known, so x_J is copied when it is there.
        if self._at.t == self._at.J:
            for p in self._z:
                self.state[p]["selected"] = self.state[p]["x"].clone()
