"""Every error and warning that a user can meet.

A message says what is wrong, what was given, why it matters and what to try.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial, wraps
from types import FrameType
from typing import Any, TypeVar

Class = TypeVar("Class")

INNER_PACKAGES = ("oneproj", "torch")
"""Whose frames may lie between a warning and the user's call: torch's are those of
decorators."""


class OneprojError(Exception):
    """Base of all errors raised on purpose by this library.

    Example:
        >>> issubclass(InvalidProblemError, OneprojError)
        True
    """


class InvalidProblemError(OneprojError, ValueError):
    """The problem, or an argument that describes it, does not make sense.

    Example:
        >>> issubclass(InvalidProblemError, ValueError)
        True
    """


class InvalidScheduleError(OneprojError, ValueError):
    """The request lies outside the range in which a theorem holds.

    Example:
        >>> issubclass(InvalidScheduleError, ValueError)
        True
    """


class NonFiniteError(OneprojError, ArithmeticError):
    """A value or gradient became NaN or infinite.

    Example:
        >>> str(NonFiniteError("the gradient of 'risk'", step=3)).splitlines()[0]
        "the gradient of 'risk' is NaN or infinite at update 3."
    """

    def __init__(self, quantity: str, *, step: int | None = None) -> None:
        """Name the quantity and, inside a run, the update that produced it."""
        self.quantity = quantity
        self.step = step
        when = "" if step is None else f" at update {step}"
        smaller = "a smaller learning rate or a finite radius"
        if step is None:  # outside a run nothing is learned
            smaller = "smaller parameters, if a loss overflows at these"
        super().__init__(
            f"{quantity} is NaN or infinite{when}.\n"
            "Nothing after this point could be trusted, so it stops here. "
            f"Try: (a) look for NaN or inf in the data, (b) {smaller}, "
            "(c) a loss that is defined for every output of "
            "the model (a log of a clamped probability, for example)."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made of, to be copied or sent from another process."""
        made_by = partial(type(self), step=self.step)
        return made_by, (self.quantity,), self.__dict__


class ProjectionFailed(OneprojError, RuntimeError):  # noqa: N818 - the contract's name
    """A projection did not reach a feasible point.

    Example:
        >>> issubclass(ProjectionFailed, RuntimeError)
        True
    """


class InfeasibleError(ProjectionFailed):
    """No feasible point was found: the constraints may exclude each other.

    Example:
        >>> issubclass(InfeasibleError, ProjectionFailed)
        True
    """


class CheckpointError(OneprojError, RuntimeError):
    """A checkpoint cannot be written, read, or used for this run.

    Example:
        >>> issubclass(CheckpointError, OneprojError)
        True
    """


class RankError(OneprojError, RuntimeError):
    """Another rank of the process group has ended, or cannot be reached.

    Example:
        >>> issubclass(RankError, RuntimeError)
        True
    """


class OneprojWarning(UserWarning):
    """Something was changed or could not be done, and the user should know.

    Example:
        >>> issubclass(OneprojWarning, UserWarning)
        True
    """


def warn(message: str, kind: type[Warning] = OneprojWarning) -> None:
    """Give a warning at the line of the user's call, however deep this is.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     warn("The start was moved.")
        >>> str(caught[0].message)
        'The start was moved.'
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_inner(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def _is_inner(frame: FrameType) -> bool:
    return _package(frame) in INNER_PACKAGES


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def is_of_users_code(error: BaseException) -> bool:
    """Whether an error passed through code of the user's on its way here.

    Code is the user's if it is neither this library's, nor that of a package that it
    calls, nor Python's own.

    Example:
        >>> mine = {"__name__": "my_script"}
        >>> exec("def loss(): raise KeyError", mine)
        >>> try:
        ...     mine["loss"]()
        ... except KeyError as error:
        ...     is_of_users_code(error)
        True
    """
    frames = traceback.walk_tb(error.__traceback__)
    known = {*INNER_PACKAGES, "numpy", "scipy", *sys.stdlib_module_names}
    known -= {"__main__"}
    return any(_package(frame) not in known for frame, _ in frames)


def deprecate(old: str, new: str) -> None:
    """Say that an old name still works, until when, and what to write instead.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     deprecate("Status.EMPTY", "Status.PROVEN_INFEASIBLE")
        >>> print(caught[0].message)
        Status.EMPTY is deprecated since 0.2.0, and 0.3.0 will drop it. Write \
Status.PROVEN_INFEASIBLE.
    """
    message = f"{old} is deprecated since 0.2.0, and 0.3.0 will drop it. Write {new}."
    warn(message, DeprecationWarning)


def old_argument(old: str, new: str) -> Callable[[type[Class]], type[Class]]:
    """Let a class take an argument under its old name too, with a warning.

    Example:
        >>> @old_argument("breadth", "width")
        ... class Box:
        ...     def __init__(self, width): self.width = width
        >>> with warnings.catch_warnings(action="ignore"):
        ...     Box(breadth=3).width
        3
    """

    def rename(owner: type[Class]) -> type[Class]:
        build = owner.__init__

        @wraps(build)
        def init(self: Class, *args: object, **kwargs: object) -> None:
            if old in kwargs:
                deprecate(f"{owner.__name__}({old}=)", f"{owner.__name__}({new}=)")
                kwargs[new] = kwargs.pop(old)
            build(self, *args, **kwargs)

        owner.__init__ = init  # type: ignore[assignment, method-assign]
        return owner

    return rename
