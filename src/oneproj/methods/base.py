"""What ``solve`` asks of a method: updates, and a feasible point at the end.

A method is two things. ``AbstractMethod`` is a frozen dataclass of its options, which a
user may build and pass on: ``solve(problem, method=ProjectedSGD(lr=0.05))``. Its
``begin`` makes an ``AbstractUpdater``, which holds the state of one run.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from oneproj.arguments import plain
from oneproj.errors import CheckpointError, InvalidProblemError
from oneproj.methods.context import Context
from oneproj.oracles import Estimate, OracleLike
from oneproj.results import Projection
from oneproj.theory import Schedule
from oneproj.theory.observations import Observations


class AbstractUpdater(ABC):
    """The state of one run: ``update()`` again and again, then ``finish()``.

    It owns its loop variables and nothing else: ``solve`` counts updates, keeps time
    and history, and certificates judge the result.

    Example:
        >>> import oneproj
        >>> from oneproj.methods import AbstractUpdater
        >>> class Rest(AbstractUpdater):
        ...     def __init__(self, context):
        ...         self.context = context
        ...         self.oracle = context.oracle(oneproj.Hinge(1.0))
        ...     def update(self): return self.oracle.backward()
        ...     def finish(self): return self.context.project()
    """

    WITHOUT_STATE: ClassVar[str] = "It has no state_dict()."
    """Why a run of it cannot be saved, where it cannot."""

    @abstractmethod
    def update(self) -> Estimate:
        """Use one stochastic gradient of the objective; say what was seen."""

    @abstractmethod
    def finish(self) -> Projection:
        """Make the parameters hold the answer; say how it became feasible."""

    @property
    def done(self) -> bool:
        """Whether further updates would do nothing; most methods never know."""
        return False

    @property
    def stuck(self) -> bool:
        """Whether a projection of the last update failed; ``finish`` reports it."""
        return False

    @property
    def outer(self) -> int | None:
        """Outer iterations that are complete; None for a method that has none."""
        return None

    @property
    def seen(self) -> Observations | None:
        """What a run with a schedule saw of what its constants bound; else None."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """All that further updates depend on, beyond the parameters and the context.

        Between two updates. Tensors need not be copied: the state is written to a file
        before the next one. Numbers, strings, tensors and containers of them only.

        Raises:
            CheckpointError: The method cannot be resumed; the message says why.
        """
        message = (
            f"A run of this method cannot be saved and resumed. {self.WITHOUT_STATE} "
            "Leave out checkpoint=, or use another method."
        )
        raise CheckpointError(message)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state; the parameters and the context have theirs."""
        del state
        self.state_dict()  # says why not

    def describe(self) -> dict[str, Any]:
        """What the method settled itself; takes precedence in ``Solution.settings``."""
        return {}


class AbstractMethod(ABC):
    """One way to solve a problem: a frozen dataclass whose fields are its options.

    Example:
        >>> import oneproj
        >>> oneproj.methods.ProjectedSGD(lr=0.1)
        ProjectedSGD(lr=0.1, base='sgd', decay='constant')
    """

    name: ClassVar[str]
    """What ``Solution.settings`` and messages call it."""
    follows_schedules: ClassVar[bool] = False
    """Whether it can execute a schedule: the theorems are about Algorithm 1."""
    WITHOUT_OPTIONS: ClassVar[str] = "It has none."
    """What to tell who gives an option to a method that has none."""

    @abstractmethod
    def begin(self, context: Context) -> AbstractUpdater:
        """Prepare a run; the parameters hold the start."""

    def takes_anchors(self, oracle: OracleLike, *, scheduled: bool) -> bool:
        """Whether a run may take anchors, and ``anchor_size`` so has an effect.

        Args:
            oracle: As it was given to ``solve``.
            scheduled: Whether a schedule takes the place of the options.
        """
        if not isinstance(oracle, str):
            return oracle.uses_anchors
        return oracle == "anchored" or (oracle == "auto" and not scheduled)

    @property
    def options(self) -> dict[str, Any]:
        """The options by name."""
        return dict(vars(self))


def make_method(
    method: type[AbstractMethod] | AbstractMethod,
    options: Mapping[str, Any],
    schedule: Schedule | None,
    *,
    beside: Sequence[str] = (),
) -> AbstractMethod:
    """A method with its options; refuses unknown ones, and any beside a schedule.

    Args:
        method: A class, whose options are still to be given, or an object with them.
        options: By name, as they were given to ``solve``.
        schedule: That is followed, if any.
        beside: Arguments that every method has: a misspelt name may be one of these.

    Raises:
        InvalidProblemError: An option is unknown, or is given twice, or the schedule
            sets it already.
    """
    if isinstance(method, AbstractMethod):
        return _check_object(method, options, schedule)
    known = list(inspect.signature(method).parameters)
    for name in options:
        if name not in known:
            has = f"It has: {', '.join(known)}." if known else method.WITHOUT_OPTIONS
            near = get_close_matches(name, [*beside, *known], n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            has += f" Besides, solve takes: {', '.join(beside)}." if beside else ""
            message = f"The method {method.name!r} has no option {name!r}. {meant}{has}"
            raise InvalidProblemError(message)
    _check_schedule(method, options, schedule)
    return method(**{name: plain(given) for name, given in options.items()})


def _check_object(
    method: AbstractMethod, options: Mapping[str, Any], schedule: Schedule | None
) -> AbstractMethod:
    if options:
        message = (
            f"The method is an object, {method!r}, and holds its own options; got "
            f"{sorted(options)} beside it. Give them to the object, or name the "
            f"method: method={method.name!r}."
        )
        raise InvalidProblemError(message)
    defaults = {
        name: argument.default
        for name, argument in inspect.signature(type(method)).parameters.items()
    }
    given = {k: v for k, v in method.options.items() if v != defaults.get(k)}
    _check_schedule(type(method), given, schedule)
    return method


def _check_schedule(
    method: type[AbstractMethod], options: Mapping[str, Any], schedule: Schedule | None
) -> None:
    """Refuse a schedule for a method without theorems, and options beside it."""
    if schedule is not None and not method.follows_schedules:
        message = (
            f"The method {method.name!r} cannot follow a schedule: the theorems are "
            'about Algorithm 1. Use method="one-projection", or give steps.'
        )
        raise InvalidProblemError(message)
    if schedule is not None and options:
        message = (
            "A schedule is executed to the letter: it sets the steps, the penalty and "
            f"the selection, so no option may be given with it; got {sorted(options)}."
        )
        raise InvalidProblemError(message)


def check_anchor_size(
    method: AbstractMethod,
    anchor_size: int | None,
    oracle: OracleLike,
    *,
    scheduled: bool,
) -> None:
    """Refuse a size of anchors where no anchor is taken.

    Args:
        method: That is to run.
        anchor_size: As it was given; None if it was not.
        oracle: As it was given.
        scheduled: Whether a schedule takes the place of the options.

    Raises:
        InvalidProblemError: It would have no effect.
    """
    if anchor_size is None or method.takes_anchors(oracle, scheduled=scheduled):
        return
    beside = f"method={method.name!r} and oracle={oracle!r}"
    if scheduled:
        beside += " and a schedule"
    message = (
        f"anchor_size={anchor_size} has no effect with {beside}: no anchor is taken. "
        'They are taken by oracle="anchored", and by method="one-projection" with '
        "automatic strengths. Leave anchor_size out, or use one of these."
    )
    raise InvalidProblemError(message)
