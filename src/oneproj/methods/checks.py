"""What ``OneProjection`` checks: its arguments, its start, and the user's loop.

At the start the frozen parameters are left out, x_0 is projected onto the ball, the
base optimiser is made, and the index J of the selected iterate is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from oneproj.arguments import check_count, check_generator, check_number
from oneproj.errors import InvalidProblemError, warn
from oneproj.problem.autograd import require_autograd
from oneproj.problem.trainable import trainable
from oneproj.vectors.arithmetic import Vector, project_ball_, rounding_unit

Select = Literal["last", "random"]
Groups = list[dict[str, Any]]
"""Of parameters, as torch.optim has them."""
ROUNDING = 16.0
"""In units of the radius's last place: outside by less is an earlier P_B's rounding."""


def keep_moving(groups: Groups) -> tuple[list[Tensor], list[Tensor]]:
    """Leave frozen parameters out of their groups; returns who moves, and who not.

    Raises:
        InvalidProblemError: There are none, or one cannot be optimised.

    Example:
        >>> groups = [{"params": [torch.ones(1), torch.ones(2, requires_grad=True)]}]
        >>> moving, frozen = keep_moving(groups)
        >>> len(moving), len(frozen), len(groups[0]["params"])
        (1, 1, 1)
    """
    given = [p for group in groups for p in group["params"]]
    moving = trainable(given)
    for group in groups:
        names = group["param_names" if "param_names" in group else "params"]
        pairs = zip(group["params"], names, strict=True)
        kept = {id(p): (p, name) for p, name in pairs if p.requires_grad}  # each once
        group["params"] = [p for p, _ in kept.values()]
        if "param_names" in group:
            group["param_names"] = [name for _, name in kept.values()]
    return moving, [p for p in given if not p.requires_grad]


def move_start_into_ball(
    parameters: Vector, radius: float, center: Vector | None
) -> None:
    """Project a start outside the ball onto it, and say so.

    Example:
        >>> w = torch.tensor([0.5])
        >>> move_start_into_ball([w], 1.0, None); w.item()
        0.5
    """
    outside = project_ball_(parameters, radius, center)
    eps = rounding_unit(parameters)
    if outside > ROUNDING * eps * radius:
        message = (
            f"The start lies {outside:.3g} outside the safeguard ball of radius "
            f"{radius:.3g} and was projected onto it. Choose a larger radius, or a "
            "center near the start, if the start was meant."
        )
        warn(message)


def make_base(base: Callable[[Groups], Optimizer], groups: Groups) -> Optimizer:
    """The optimiser of lines 11-12; it must take dense gradients, without a closure.

    Example:
        >>> groups = [{"params": [torch.ones(1)], "lr": 0.1}]
        >>> type(make_base(torch.optim.SGD, groups)).__name__
        'SGD'
    """
    if isinstance(base, Optimizer):
        message = (
            f"base must make an optimiser, but got one that is made: it is {_a(base)} "
            "with groups and step sizes of its own. Pass its class, or "
            "functools.partial of it with its other settings."
        )
        raise InvalidProblemError(message)
    if not callable(base):
        message = (
            "base must be a class of torch.optim, or a function that makes an "
            f"optimiser from parameter groups, got {base!r}. Pass torch.optim.Adam, or "
            "functools.partial of it; names are for oneproj.solve."
        )
        raise InvalidProblemError(message)
    made: object = base(groups)
    if not isinstance(made, Optimizer) or isinstance(made, LBFGS | SparseAdam):
        message = (
            "base must make an optimiser of torch.optim from parameter groups, one "
            "that steps with dense gradients and without a closure, but it made "
            f"{_a(made)}. Line 12 takes one step for one stochastic gradient: use "
            "torch.optim.SGD or Adam, or functools.partial of one."
        )
        raise InvalidProblemError(message)
    if [id(group) for group in made.param_groups] != [id(group) for group in groups]:
        message = (
            f"base made {_a(made)} of other parameter groups than it was given. It "
            "moves those parameters, with their step sizes: hand them on unchanged, "
            "as torch.optim.Adam(groups) does."
        )
        raise InvalidProblemError(message)
    _warn_of_another_lr(base, groups)
    return made


def _a(thing: object) -> str:
    return f"a {type(thing).__name__}"


def _warn_of_another_lr(base: object, groups: Groups) -> None:
    own = base.keywords.get("lr") if isinstance(base, partial) else None
    used = [group["lr"] for group in groups]
    if own is not None and own not in used:
        message = (
            f"The base has lr={own}, which is not used: its groups have lr={used[0]}, "
            "that of the method. Set the step size there."
        )
        warn(message)


@torch.no_grad()
def forget_nonfinite_(base: Optimizer) -> None:
    """Set what an optimiser remembers to zero wherever it is NaN or infinite.

    Momentum that took in one NaN would make every later step NaN.

    Example:
        >>> w = torch.ones(1, requires_grad=True); w.grad = torch.tensor([float("nan")])
        >>> base = torch.optim.SGD([w], lr=0.1, momentum=0.9); base.step()
        >>> forget_nonfinite_(base); base.state[w]["momentum_buffer"].item()
        0.0
    """
    for remembered in base.state.values():
        for name, part in remembered.items():
            if isinstance(part, Tensor) and part.is_floating_point():
                whole = part.coalesce() if part.is_sparse else part
                remembered[name] = whole.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def draw_index(
    select: Select,
    outer_steps: int | None,
    first_index: int,
    generator: torch.Generator | None,
) -> int | None:
    """Draw J uniformly from the index set (line 5); None stands for the last.

    Example:
        >>> draw_index("last", None, 1, None) is None
        True
        >>> draw_index("random", 3, 1, torch.Generator().manual_seed(0)) in {1, 2, 3}
        True
    """
    if first_index not in (0, 1):
        message = (
            f"first_index must be 0 or 1, as the theorems have it, got {first_index}."
        )
        raise InvalidProblemError(message)
    if outer_steps is not None:
        many = "It is T, how many outer iterations the run will make; None if unknown."
        check_count("outer_steps", outer_steps, many)
    check_generator(generator, "It draws J.")
    if select == "last":
        return None
    if select != "random":
        message = f'select must be "last" or "random", got {select!r}.'
        raise InvalidProblemError(message)
    if outer_steps is None or generator is None:
        message = (
            'select="random" draws J before the run, so it needs outer_steps >= 1 and '
            f"a torch.Generator; got outer_steps={outer_steps}, generator={generator}."
        )
        raise InvalidProblemError(message)
    place = generator.device
    drawn = torch.randint(outer_steps, (), generator=generator, device=place)
    return first_index + int(drawn)


STEP = "It is the length of a step against the gradient; 0.001 to 0.1 are usual."
PULL = "It is the pull towards the proximal centre; 0 is none."
POWER = "The mean of line 14 weighs the s-th iterate by s to this power; 0 is none."
THEOREM = "The step is 2 / (m (s + 1))."
RADIUS = "It bounds every iterate; leave it out for no bound."
STEPS_WITHOUT_GRADIENT = 2
"""Checks in a row without a gradient, from which on a warning is due."""


def check_rates(groups: Groups, m: float | None) -> None:
    """Refuse groups without a step size, or with two; make each a plain number.

    Example:
        >>> import numpy as np
        >>> groups = [{"params": [], "lr": np.float32(0.5)}]
        >>> check_rates(groups, None); groups[0]["lr"]
        0.5
    """
    for group in groups:
        if (group["lr"] is None) == (m is None):
            message = (
                "Give either lr (a constant, or for a scheduler) or strong_convexity "
                "(for the theorems' step 2/(m(s+1))); got "
                f"lr={group['lr']}, strong_convexity={m}."
            )
            raise InvalidProblemError(message)
        if m is None:
            group["lr"] = check_number("lr", group["lr"], STEP, zero=True)
        else:
            group["lr"] = 1.0 / m  # line 10 for s = 1


def check_pull(lr: float, prox_weight: float) -> None:
    """Refuse a pull that overshoots the proximal centre.

    A step moves z by the share ``lr * prox_weight`` of its way to the centre, whatever
    the base: beyond 1 it ends on the other side, and beyond 2 farther away than before.
    A theorem's step 2 / (m (s + 1)) is not concerned: it shrinks within K steps.

    Example:
        >>> check_pull(0.1, 2.0)
    """
    if lr * prox_weight > 1.0:
        message = (
            f"lr={lr:g} times prox_weight={prox_weight:g} is {lr * prox_weight:.3g}: "
            "every step would overshoot the proximal centre that prox_weight pulls to, "
            "and above 2 the iterates diverge. Choose the two so that their product is "
            "at most 1; 0.02 to 1 are usual for prox_weight."
        )
        raise InvalidProblemError(message)


def check_inner_steps(inner_steps: object) -> int:
    """Refuse what is no count of inner updates.

    Example:
        >>> check_inner_steps(25)
        25
    """
    why = "It is K, the updates of one outer iteration; 10 to 25 are usual."
    return check_count("inner_steps", inner_steps, why)


def check_step(*, shown: str | None) -> None:
    """Refuse a step that would go to waste.

    Raises:
        InvalidProblemError: ``eval()`` shows an iterate, or nothing is recorded.

    Example:
        >>> check_step(shown=None)
    """
    if torch.is_inference_mode_enabled():
        require_autograd()  # which has the words
    if shown is not None:
        message = (
            "step() was called while the parameters hold the selected iterate. "
            "Call optimizer.train() first: gradients belong at the inner iterate."
        )
        raise InvalidProblemError(message)


def check_alike(point: Vector, state: Vector, error: Exception) -> None:
    """Explain a step that failed because a parameter was converted or moved.

    Raises:
        InvalidProblemError: A parameter has another dtype, device or shape by now.

    Example:
        >>> check_alike([], [], RuntimeError())
    """
    for p, kept in zip(point, state, strict=True):
        now, before = (f"{t.dtype} on {t.device}, {tuple(t.shape)}" for t in (p, kept))
        if now != before:
            message = (
                f"A parameter is {now} by now, and was {before} when the optimiser was "
                "built, so it and its centre x_t cannot be added. Convert or move the "
                "model first, and build the optimiser then."
            )
            raise InvalidProblemError(message) from error


def check_precision(inner_steps: int, parameters: Vector) -> None:
    """Warn where a running mean of ``inner_steps`` points would stop moving.

    The s-th point changes the mean by 1/s of its distance, which is rounded away when
    1/s is below the rounding unit.

    Example:
        >>> check_precision(1000, [torch.ones(1)])
    """
    eps = rounding_unit(parameters)
    if inner_steps * eps > 1.0:
        message = (
            f"The mean of inner_steps={inner_steps} points cannot be kept in this "
            f"precision (eps = {eps:.1e}): later points would not count. Use fewer "
            "inner steps or parameters of a wider dtype."
        )
        warn(message)


class Watch:
    """Checks for mistakes in a user's loop that raise no error by themselves.

    Args:
        moving: The parameters that are part of x.
        frozen: Those that were constants at the start.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> Watch([w], []).check()
    """

    def __init__(self, moving: Sequence[Tensor], frozen: Sequence[Tensor]) -> None:
        """Keep the parameters that move and those that do not."""
        self._moving, self._frozen = moving, list(frozen)
        self._warned_of_start = False
        self._without = 0  # checks in a row at which no parameter had a gradient

    def check(self) -> None:
        """Refuse frozen parameters; warn, once each, of what has no effect.

        That is a parameter that was frozen at the start and is not any more, and steps
        without any gradient. It is called twice in an outer iteration, so that the
        steps between cost nothing more.

        Raises:
            InvalidProblemError: A parameter is frozen by now. The pull to the centre
                and the mean of line 14 would go on moving it.
        """
        require_autograd(self._moving, built="optimiser")
        if self._frozen:
            self._warn_of_thawed()
        if any(p.grad is not None for p in self._moving):
            self._without = 0
        else:
            self._without += 1
            self._warn_of_no_gradient()

    def _warn_of_no_gradient(self) -> None:
        if (
            self._without == STEPS_WITHOUT_GRADIENT
        ):  # once: a first step may come before the first loss
            message = (
                "step() is called, but no parameter has a gradient, and none moves. "
                "Call loss.backward() between zero_grad() and step(). If you do, the "
                "loss is of other tensors than the optimiser was built from: "
                "load_state_dict(..., assign=True), a deep copy and a layer that was "
                "replaced do that."
            )
            warn(message)

    def warn_of_start(self, t: int, made: int, K: int, J: int | None) -> None:
        """Warn, once, if ``eval()`` shows the start, though updates were made.

        Line 14 takes the mean of ``z_1 = x_t`` and what the first K - 1 updates make of
        it: with K = 1 that is ``x_t`` itself. ``J = 0`` may be what is meant.

        Args:
            t: Complete outer iterations.
            made: Inner updates since the last of them.
            K: Inner updates of each.
            J: The index that was drawn, if one was.
        """
        if J == 0 or self._warned_of_start:
            return
        if K == 1 and t:
            message = (
                f"The selected iterate is the start: nothing of {t} update(s) counts. "
                "With inner_steps=1 the next centre is the mean of one iterate, the "
                "centre itself (line 14 of Algorithm 1). Choose inner_steps >= 2; 10 "
                "to 25 are usual."
            )
        elif made and not t:
            message = (
                f"The selected iterate is the start: nothing of {made} update(s) "
                f"counts. An outer iteration takes inner_steps={K} of them, and none "
                "is complete. Make more updates, or choose fewer inner_steps."
            )
        else:
            return
        self._warned_of_start = True
        warn(message)

    def _warn_of_thawed(self) -> None:
        thawed = [p for p in self._frozen if p.requires_grad]
        if thawed:
            self._frozen.clear()
            message = (
                f"{len(thawed)} parameter(s), the first of shape "
                f"{tuple(thawed[0].shape)}, had requires_grad=False when the optimiser "
                "was built and have it no more. They are constants of this run and do "
                "not move. Build a new optimiser once they are to be trained."
            )
            warn(message)
