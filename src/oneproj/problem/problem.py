"""The problem: an objective, named constraints, and a safeguard ball.

``min f(x)  subject to  c_j(x) <= 0 (j = 1..m),  |x - center| <= radius``, eq. problem.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from oneproj.arguments import check_number
from oneproj.distributed import Fact, digest, setting_facts
from oneproj.errors import InvalidProblemError, warn
from oneproj.problem.autograd import fresh_casts, require_autograd
from oneproj.problem.checks import check_connected, check_still_connected, common_facts
from oneproj.problem.terms import (
    AbstractExpression,
    AbstractTerm,
    Constraint,
    mark_trained,
)
from oneproj.problem.trainable import as_center, trainable
from oneproj.vectors.arithmetic import dimension

RESERVED_NAMES = ("objective", "outer", "seconds", "update")
"""Columns of a run's history and its logs, which have one per constraint as well."""


class Constrained:
    """Parameters and the constraints on them, without an objective.

    That is all an anchor, an oracle and ``AutoPenalty`` need; ``Problem`` adds what is
    minimised.

    Args:
        parameters: Any iterable of tensors, or one tensor. Frozen ones are constants.
        constraints: Name to constraint; pairs are accepted too.
        model: A module that has two modes, as ``Problem`` takes it.

    Example:
        >>> from oneproj import function
        >>> w = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> Constrained(w, {"size": function(lambda: w.norm()) <= 1.0}).residuals()
        {'size': 1.0}
    """

    CALL: ClassVar[str] = "oneproj.AutoPenalty"
    """What the user called, for messages."""
    radius: float = math.inf
    center: list[Tensor] | None = None

    def __init__(
        self,
        parameters: Iterable[Tensor] | Tensor,
        constraints: Mapping[str, AbstractTerm] | Iterable[tuple[str, AbstractTerm]],
        *,
        model: torch.nn.Module | None = None,
    ) -> None:
        """Check the parameters and the constraints against each other."""
        self.parameters = trainable(parameters)
        self.model = _as_model(model)
        self.constraints = named_constraints(constraints, model)
        self._check_terms()

    @property
    def terms(self) -> tuple[AbstractTerm, ...]:
        """Every term that is evaluated on the parameters."""
        return tuple(self.constraints.values())

    def residuals(self) -> dict[str, float]:
        """Every constraint on all of its data; feasible means <= 0."""
        with fresh_casts():
            return {name: c.value() for name, c in self.constraints.items()}

    def _check_terms(self) -> None:
        """Evaluate every term on a few examples, and warn of modules that train."""
        mark_trained(self.terms)
        probe = check_connected(self.terms, self.parameters)
        if probe.kinds:
            message = (
                f"{probe.kinds} in training mode: the value of a term is random, "
                "changes with every call, or depends on the rest of its batch, so that "
                "what is found feasible need not be so after model.eval(). Pass "
                f"{self.CALL}(..., model=model), the one that has them, which "
                "evaluates where it counts, or call model.eval() first."
            )
            warn(message)


class Problem(Constrained):
    """Minimise an objective under named constraints, inside a safeguard ball.

    Args:
        parameters: Any iterable of tensors, or one tensor. Frozen ones are constants.
        objective: ``oneproj.mean(...)`` or ``oneproj.function(...)``.
        constraints: Name to constraint; pairs are accepted too.
        radius: Of the ball that every iterate stays in; infinite when left out. The
            theorems need it finite and the feasible set inside.
        center: Of that ball: tensors shaped like the parameters; None is the origin.
        model: A module with dropout, batch norm or anything else that has two modes.
            It is in evaluation mode for every full pass, anchor, projection and
            certificate, and in the mode that it has, training as a rule, for the
            minibatches in between; every module gets its mode back, also after an
            error. None leaves the modes to you, with a warning where a module of torch
            that has two is in training mode.

    **Dropout** adds noise to the minibatches; the answer is that of ``model.eval()``.
    Two evaluations of one minibatch then differ, so anchors do not correct its values.
    The noise comes from torch's global generator: seed it yourself.

    **Batch norm** moves its running statistics with every minibatch that it sees in
    training mode. ``solve`` lets it do so in the first half of the planned updates, or
    of ``seconds`` if that ends sooner and there is no checkpoint. Later updates, the
    projection and the certificate use the statistics of that time and do not change
    them: what was found feasible is feasible with ``model.eval()``. A run that is
    stopped in its first half may have a much higher objective than one that was planned
    to be as short. A layer in evaluation mode keeps its statistics throughout:
    call its ``eval()`` if the model is trained already. ``method="slsqp"``, which
    ``"auto"`` takes for small problems, sees no minibatches: every layer keeps the
    statistics that it has, and those of a new model are mean 0 and variance 1.

    A checkpoint holds the model's buffers and the state of the global CPU generator.

    Every term is evaluated on three examples, twice, so that a wrong shape or a term
    that the parameters do not reach is found here and not after an hour of training.

    Raises:
        InvalidProblemError: Something does not fit; the message names it.

    Example:
        >>> from oneproj import function
        >>> w = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> problem = Problem(
        ...     w,
        ...     objective=function(lambda: (w - 3.0).square().sum()),
        ...     constraints={"size": function(lambda: w.norm()) <= 1.0},
        ...     radius=10.0,
        ... )
        >>> problem.residuals()
        {'size': 1.0}
        >>> problem
        Problem: 2 parameters in 1 tensor, objective function of the parameters,
        constraints 'size': function of the parameters <= 1, radius 10
    """

    CALL = "oneproj.Problem"

    def __init__(
        self,
        parameters: Iterable[Tensor] | Tensor,
        objective: AbstractExpression,
        constraints: Mapping[str, AbstractTerm] | Iterable[tuple[str, AbstractTerm]],
        radius: float = math.inf,
        center: Tensor | Sequence[Tensor] | None = None,
        *,
        model: torch.nn.Module | None = None,
    ) -> None:
        """Check the parts against each other."""
        self.objective = _as_objective(objective).named("objective", _as_model(model))
        super().__init__(parameters, constraints, model=model)
        why = "It bounds every iterate; leave it out for no bound."
        ball = "The radius of the safeguard ball"
        self.radius = check_number(ball, radius, why, infinite=True)
        self.center = as_center(center, self.parameters)

    @property
    def terms(self) -> tuple[AbstractTerm, ...]:
        """The objective, then the constraints."""
        return (self.objective, *super().terms)

    def __repr__(self) -> str:
        """The size of the problem, its objective and its constraints, in words."""
        n, tensors = dimension(self.parameters), len(self.parameters)
        named = "; ".join(f"{name!r}: {c!r}" for name, c in self.constraints.items())
        parts = [
            f"Problem: {n} parameters in {tensors} tensor{'s' if tensors > 1 else ''}",
            f"objective {self.objective!r}",
            f"constraints {named}" if named else "no constraints",
        ]
        if self.radius < math.inf:
            parts.append(f"radius {self.radius:g}")
        return ", ".join(parts)


def named_constraints(
    constraints: Mapping[str, AbstractTerm] | Iterable[tuple[str, AbstractTerm]],
    model: torch.nn.Module | None = None,
) -> dict[str, AbstractTerm]:
    """Check the names and give each constraint its own, and the model if there is one.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> list(named_constraints([("size", function(lambda: w.norm()) <= 1.0)]))
        ['size']
    """
    pairs = constraints.items() if isinstance(constraints, Mapping) else constraints
    named: dict[str, AbstractTerm] = {}
    for pair in pairs if isinstance(pairs, Iterable) else [pairs]:
        if not (isinstance(pair, tuple) and len(pair) == 2):  # noqa: PLR2004 - a pair
            message = (
                f"Constraints need names, but got a bare {type(pair).__name__}. Pass a "
                'dict: {"source risk": risk <= 0.1}, {} for none.'
            )
            raise InvalidProblemError(message)
        name, constraint = pair
        _check_name(name, named)
        if isinstance(constraint, AbstractExpression) or not isinstance(
            constraint, AbstractTerm
        ):
            raise InvalidProblemError(_not_a_constraint(name, constraint))
        named[name] = constraint.named(name, model)
    _check_bounds([c for c in named.values() if isinstance(c, Constraint)])
    return named


def _check_bounds(constraints: Sequence[Constraint]) -> None:
    """Refuse that one term is to be >= a number and <= a smaller one."""
    for lower, upper in itertools.product(constraints, repeat=2):
        same = lower.term.original is upper.term.original
        if same and lower.sense < 0 < upper.sense and lower.bound > upper.bound:
            message = (
                f"{lower.name!r} and {upper.name!r} contradict each other: one and the "
                f"same term is to be >= {lower.bound:g} and <= {upper.bound:g}."
            )
            raise InvalidProblemError(message)


def _check_name(name: object, taken: Collection[str]) -> None:
    if not (isinstance(name, str) and name and name.isprintable()):
        reason = "it must be a string of one line"
    elif name in RESERVED_NAMES:
        reason = "the history, or a log, has a column of that name"
    elif name in taken:
        reason = "another one has that name"
    else:
        return
    message = (
        f"A constraint cannot be called {name!r}: {reason}. Residuals, multipliers, "
        "columns and messages go by name."
    )
    raise InvalidProblemError(message)


def _not_a_constraint(name: str, given: object) -> str:
    if isinstance(given, bool):
        return (
            f"The constraint {name!r} is {given}: a term cannot be compared by ==. "
            "Write two constraints, term <= 1.0 + 1e-6 and term >= 1.0 - 1e-6 (1e-4 in "
            "float32), or state linear equations as a set: oneproj.sets.Affine(matrix, "
            "values).on(weight)."
        )
    if isinstance(given, Tensor):
        return (
            f"The constraint {name!r} is a tensor: a value, or a comparison, of this "
            "moment, which does not follow the parameters. Compare a term: "
            "oneproj.function(lambda: weight.norm()) <= 1.0, or oneproj.mean(...) <= 1."
        )
    return (
        f"The constraint {name!r} is a {type(given).__name__}, which says no bound. "
        "Compare a term with a number, oneproj.mean(...) <= 0.1, or say what a set is "
        "about, oneproj.sets.Ball(1.0).on(weight)."
    )


def _as_objective(objective: object) -> AbstractTerm:
    if isinstance(objective, AbstractExpression):
        return objective
    message = (
        f"The objective is a {type(objective).__name__}. Wrap it: oneproj.mean(fn, "
        "data=...) for an average over data, oneproj.function(fn) otherwise."
    )
    raise InvalidProblemError(message)


def _as_model(model: object) -> torch.nn.Module | None:
    if model is None or isinstance(model, torch.nn.Module):
        return model
    message = (
        f"model must be a torch.nn.Module or None, got a {type(model).__name__}: its "
        "mode is switched to evaluation for full passes. Put several into one, "
        "torch.nn.ModuleList([a, b]); functions without modes need no model."
    )
    raise InvalidProblemError(message)


def check_problem(problem: object) -> None:
    """Refuse what is no problem, or one whose gradients cannot be taken any more.

    Raises:
        InvalidProblemError: Something else was given, or ``torch.inference_mode()`` is
            on, or since the problem was built a parameter was frozen, or a term uses
            other tensors.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_problem(Problem(w, function(w.sum), {}))
    """
    if not isinstance(problem, Problem):
        message = (
            f"An oneproj.Problem is needed, but got a {type(problem).__name__}. Say "
            "what to minimise and under which constraints: "
            "oneproj.Problem(model.parameters(), objective=..., constraints={...})."
        )
        raise InvalidProblemError(message)
    require_autograd(problem.parameters)
    with fresh_casts():
        check_still_connected(problem.terms, problem.parameters)


def problem_facts(problem: Problem) -> dict[str, Fact]:
    """What all ranks of a process group must agree on; costs a gradient of each term.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> facts = problem_facts(Problem(w, function(w.sum), {}, radius=2.0))
        >>> facts["radius"].value, facts["the value of 'objective'"].value
        ('2.0', 1.0)
    """
    center = None if problem.center is None else digest(problem.center)
    ball = setting_facts({"radius": problem.radius, "center": center})
    return ball | common_facts(problem.parameters, problem.terms)
