"""What ``solve`` asks of a method: updates, and a feasible point at the end."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from oneproj.arguments import plain
from oneproj.errors import CheckpointError, InvalidProblemError
from oneproj.methods.context import Setting
from oneproj.oracles import Sight
from oneproj.results import Projection
from oneproj.theory import Schedule
from oneproj.theory.observations import Observations


class AbstractMethod(ABC):
    """One way to solve a problem: ``update()`` again and again, then ``finish()``.

    A method owns its loop variables and nothing else: ``solve`` counts updates, keeps
    time and history, and certificates judge the result.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]
    """A frozen dataclass: what ``solve(..., **options)`` may set, with defaults."""
    follows_schedules: ClassVar[bool] = False
    """Whether it can execute a schedule: the theorems are about Algorithm 1."""
    WITHOUT_OPTIONS: ClassVar[str] = "It has none."
    """What to tell who gives an option to a method that has none."""
    WITHOUT_STATE: ClassVar[str] = "It does not say what it remembers (state_dict)."
    """Why a run of it cannot be saved, where it cannot."""

    @classmethod
    def takes_anchors(cls, oracle: str, options: Any) -> bool:  # noqa: ANN401 - each method has its own
        """Whether a run may look at anchors, and ``anchor_size`` so has an effect.

        Args:
            oracle: As it was given to ``solve``.
            options: Of the method; None where a schedule takes their place.
        """
        return oracle == "anchored" or (oracle == "auto" and options is not None)

    @abstractmethod
    def __init__(self, setting: Setting, options: Any) -> None:  # noqa: ANN401 - each method has its own
        """Prepare the run; the parameters hold the start."""

    @abstractmethod
    def update(self) -> Sight:
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
        """All that further updates depend on, beyond the parameters and the setting.

        Between two updates. Tensors need not be copied: the state is written to a file
        before the next one. Numbers, strings, tensors and containers of them only.

        Raises:
            CheckpointError: The method cannot be resumed; the message says why.
        """
        message = (
            f"A run of {self.name!r} cannot be saved and resumed. {self.WITHOUT_STATE} "
            "Leave out checkpoint=, or use another method."
        )
        raise CheckpointError(message)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state; the parameters and the setting have theirs."""
        del state
        self.state_dict()  # says why not

    def describe(self) -> dict[str, Any]:
        """What the method settled itself; takes precedence in ``Solution.settings``."""
        return {}


def read_options(
    method: type[AbstractMethod],
    options: Mapping[str, Any],
    schedule: Schedule | None,
    *,
    beside: Sequence[str] = (),
) -> Any:  # noqa: ANN401 - each method has its own
    """Build a method's options; refuses names it does not have, and any to a schedule.

    Args:
        method: Whose options they are.
        options: By name, as they were given.
        schedule: That is followed, if any.
        beside: Arguments that every method has: a misspelt name may be one of these.

    Raises:
        InvalidProblemError: An option is unknown, or the schedule sets it already, or
            no update would count.
    """
    known = [f.name for f in dataclasses.fields(method.Options)]
    for name in options:
        if name not in known:
            has = f"It has: {', '.join(known)}." if known else method.WITHOUT_OPTIONS
            near = get_close_matches(name, [*beside, *known], n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            has += f" Besides, solve takes: {', '.join(beside)}." if beside else ""
            message = f"The method {method.name!r} has no option {name!r}. {meant}{has}"
            raise InvalidProblemError(message)
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
    return method.Options(**{name: plain(given) for name, given in options.items()})


def check_anchor_size(
    method: type[AbstractMethod], anchor_size: int | None, oracle: str, options: object
) -> None:
    """Refuse a size of anchors where no anchor is taken.

    Args:
        method: That is to run.
        anchor_size: As it was given; None if it was not.
        oracle: As it was given.
        options: Of the method; None where a schedule takes their place.

    Raises:
        InvalidProblemError: It would have no effect.
    """
    if anchor_size is None or method.takes_anchors(oracle, options):
        return
    beside = f"method={method.name!r} and oracle={oracle!r}"
    if options is None:
        beside += " and a schedule"
    message = (
        f"anchor_size={anchor_size} has no effect with {beside}: no anchor is taken. "
        'They are taken by oracle="anchored", and by method="one-projection" with '
        "automatic strengths. Leave anchor_size out, or use one of these."
    )
    raise InvalidProblemError(message)
