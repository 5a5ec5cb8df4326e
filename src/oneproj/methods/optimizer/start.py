"""The start of a run: what moves, x_0 in the ball, the base optimiser, J drawn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from oneproj.arguments import check_count, check_generator
from oneproj.errors import InvalidProblemError, warn
from oneproj.parameters import Vector, project_ball_, rounding_unit
from oneproj.trainable import trainable

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
            "moves those parameters, with their step sizes: hand them on as they are, "
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
