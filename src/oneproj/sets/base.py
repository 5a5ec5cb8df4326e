"""What a set is: a residual that is <= 0 on it, and the nearest point."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.problem.functions import function
from oneproj.problem.terms import Constraint


class AbstractSet(ABC):
    """A closed set with a projection in closed form.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> oneproj.sets.Ball(1.0).on(w).value()
        4.0
        >>> oneproj.sets.Ball(1.0, center=[3.0, 3.0]), oneproj.sets.Box(lower=0.0)
        (Ball(radius=1, center of shape (2,)), Box(lower=0, upper=inf))
    """

    convex: bool
    """Whether the set, and with it the signed distance to it, is convex."""

    def __repr__(self) -> str:
        """The name with what it was made of, in short."""
        told = [_told(name, value) for name, value in vars(self).items()]
        return f"{type(self).__name__}({', '.join(filter(None, told))})"

    def on(self, tensor: Tensor) -> SetConstraint:
        """Require that ``tensor``, a parameter, lies in this set."""
        if not isinstance(tensor, Tensor):
            message = (
                f"A set constrains a tensor, but got {type(tensor).__name__}. Pass the "
                "parameter itself: set.on(model.weight)."
            )
            raise InvalidProblemError(message)
        if not tensor.is_floating_point():
            message = (
                f"A set constrains a tensor of real numbers, but got one of dtype "
                f"{tensor.dtype}, which no projection can move. Pass a parameter, or "
                "tensor.float()."
            )
            raise InvalidProblemError(message)
        if not tensor.is_leaf:
            message = (
                "A set constrains a parameter itself, but got the result of a "
                "computation (a slice or a product, for example), which projecting "
                "would not move. Pass the parameter, or constrain an oneproj.function "
                "of it, such as the residual of this set. Bounds on some entries are a "
                "Box with infinite bounds on the others."
            )
            raise InvalidProblemError(message)
        self.check_shape(tensor)
        return SetConstraint(self.rounded_to(tensor.dtype), tensor)

    def rounded_to(self, dtype: torch.dtype) -> AbstractSet:
        """This set as tensors of a dtype can meet it; most sets need no change."""
        del dtype
        return self

    def bare(self) -> AbstractSet:
        """This set without the band that makes its members decidable, if it has one."""
        return self

    def depth(self, x: Tensor) -> float:
        """How far inside the set a point near P(x) can lie: no margin can be larger."""
        del x
        return math.inf

    @abstractmethod
    def check_shape(self, tensor: Tensor) -> None:
        """Refuse a tensor that this set is not a set of."""

    @abstractmethod
    def residual(self, x: Tensor) -> Tensor:
        """The signed distance to the boundary, differentiable; <= 0 on the set."""

    @abstractmethod
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """The nearest point, aimed ``margin`` inside against the rounding that follows.

        A set whose nearest point stays a member when it is rounded ignores the margin.

        Raises:
            InvalidProblemError: An entry of x is NaN or infinite.
        """


class SetConstraint(Constraint):
    """The constraint ``tensor in set``; made by ``AbstractSet.on``.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> constraint = oneproj.sets.Ball(1.0).on(w)
        >>> constraint.tensor is w, constraint.members.radius
        (True, 1.0)
        >>> constraint
        tensor of shape (2,) in Ball(radius=1)
    """

    always_float64 = True

    def __init__(self, members: AbstractSet, tensor: Tensor) -> None:
        """Keep the set and the parameter."""
        # In float64, so that <= 0 is decided beyond the rounding of the parameter.
        residual = function(
            lambda: members.residual(tensor.double()),
            curvature="convex" if members.convex else None,
        )
        super().__init__(residual, 0.0, sense=1)
        self.members = members
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"tensor of shape {tuple(self.tensor.shape)} in {self.members!r}"


def check_finite(members: AbstractSet, x: Tensor) -> None:
    """Refuse a point with NaN or infinite entries: it has no nearest point.

    Example:
        >>> import oneproj
        >>> check_finite(oneproj.sets.Ball(1.0), torch.tensor([3.0, 4.0]))
    """
    wrong = x.numel() - int(torch.isfinite(x).sum())
    if wrong:
        message = (
            f"{members!r} cannot project a point with NaN or infinite entries, and "
            f"{wrong} of the {x.numel()} given are: it has no nearest point. Look for "
            "where they come from, such as a learning rate that is too large, or "
            "replace them first: torch.nan_to_num(x)."
        )
        raise InvalidProblemError(message)


def _told(name: str, value: object) -> str:
    """An attribute of a set in a word or two; nothing where it says nothing."""
    if value is None or name.startswith("_"):
        return ""
    if isinstance(value, Tensor) and value.dim():
        return f"{name} of shape {tuple(value.shape)}"
    number = value.item() if isinstance(value, Tensor) else value
    return f"{name}={number:g}" if isinstance(number, float) else f"{name}={number!r}"
