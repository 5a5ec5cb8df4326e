"""``AutoPenalty``: the penalty of Algorithm 1 as a scalar, for a loop of your own.

``penalty()`` is an ordinary scalar tensor. Its gradient is ``sum_j w_j grad c_j(z)`` on
a new minibatch, with weights w that autograd does not see, and its value is that of the
penalty. Whatever changes gradients on their way to the step treats it as part of the
loss: mixed precision, accumulation, clipping.

Where the weights come from:

- At an *anchor*, every ``anchor_every`` steps or at each centre of ``OneProjection``,
  every constraint and its gradient are evaluated on all data, or on a large sample.
- Between two anchors the value of a constraint is estimated by the minibatch, corrected
  by the anchor (``oracles.anchored``), and the weight is the slope of its hinge there.
- The strengths of the hinges follow the multipliers, which are estimated at each anchor
  from the mean gradient of the objective since the last (``methods.strength``).

The gradient of the objective is what the step finds in ``.grad``, less the weights
times the constraints' gradients at the anchor. If the gradient was scaled, by a
``GradScaler`` or by clipping, that factor is measured: it is what the penalty received
in the backward pass, times what the gradients lost between that pass and the step
(``methods.backward_watch``). Without it strengths are wrong by that factor.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from oneproj.arguments import at_most_five, check_count
from oneproj.certificates.certify import certify_run
from oneproj.certificates.kkt import feasibility
from oneproj.defaults import Defaults
from oneproj.distributed import world_size
from oneproj.errors import InvalidProblemError, warn
from oneproj.methods.backward_watch import BackwardWatch
from oneproj.methods.base import check_defaults, safeguard
from oneproj.methods.engine import PenaltyEngine
from oneproj.methods.one_projection import OneProjection
from oneproj.methods.strength import AutoStrength
from oneproj.oracles.anchored import Anchored
from oneproj.oracles.plan import (
    BETWEEN_ANCHORS,
    plan_anchors,
    plan_at_once,
    plan_batches,
    sees_the_same,
)
from oneproj.problem.autograd import densify, fresh_casts, require_autograd
from oneproj.problem.checks import holds
from oneproj.problem.modes import evaluating_when_called
from oneproj.problem.problem import Constrained, Problem
from oneproj.problem.terms import AbstractExpression, AbstractTerm
from oneproj.projection.project import OnFailure, project, raise_if_infeasible
from oneproj.results import Certificate, Counts, Projection, Solution, Status
from oneproj.schema import SchemaError, check_like
from oneproj.vectors.arithmetic import (
    assign,
    gradients,
    norm,
    snapshot,
    state_on_devices,
)

NEWEST: weakref.WeakKeyDictionary[Optimizer, BackwardWatch] = (
    weakref.WeakKeyDictionary()
)
"""The watch of the newest penalty on each optimizer."""
STEPS_WITHOUT_PENALTY = 20
"""Steps in a row whose gradient has no part of the penalty, before a warning."""


class AutoPenalty:
    """A penalty for hard constraints that needs no tuning, for any training loop.

    Add ``penalty()`` to the loss of every update, and call ``finish()`` once at the
    end: it selects the iterate, projects it onto the feasible set, and certifies it.

    Args:
        optimizer: Makes the steps: a ``OneProjection``, whose centres are the anchors,
            or any other ``torch.optim.Optimizer``. Build the penalty after it. Hooks on
            its ``step`` observe the gradients; they change nothing. A wrapper that has
            it as ``optimizer``, as Accelerate's, stands for it.
        constraints: Name to constraint, as ``Problem`` takes them: all of the run, in
            one penalty. Two on one optimizer would each undo the other's projection.
        seed: Of the minibatches of the constraints.
        batch_size: Examples of a constraint per update; None for 128, or up to 1,024
            where more cost next to nothing.
        anchor_every: Steps between two anchors; None for 10. Only for an optimizer that
            has no centres.
        defaults: Other numbers than the library's own.
        model: A module with dropout, batch norm or anything else that has two modes: it
            is in evaluation mode for anchors, the projection and the certificate.

    **Guarantee.** What ``finish()`` returns without an error is feasible: every
    residual is at most 0, on all data, in evaluation mode. Nothing is promised of the
    iterates before.

    **Cost.** An update evaluates one minibatch of every constraint. An anchor costs a
    gradient of every constraint on up to 2,048 examples, and sometimes a pass over all
    data. In memory it keeps three vectors of the model's size and one per constraint.

    **Saving.** ``state_dict()`` between two updates, beside that of the model and of
    the optimizer, resumes bit for bit.

    Raises:
        InvalidProblemError: An argument does not fit; the message names it.

    Example:
        >>> import torch, oneproj
        >>> w = torch.zeros(2, requires_grad=True)
        >>> size = oneproj.function(lambda: w.square().sum())
        >>> opt = oneproj.OneProjection([w], lr=0.1)
        >>> penalty = oneproj.AutoPenalty(opt, {"size": size <= 1.0})
        >>> for _ in range(200):
        ...     opt.zero_grad()
        ...     loss = (w - torch.tensor([3.0, 4.0])).square().sum()
        ...     (loss + penalty()).backward()
        ...     opt.step()
        >>> solution = penalty.finish()
        >>> solution.feasible, [round(x, 1) for x in w.tolist()]
        (True, [0.6, 0.8])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        constraints: Mapping[str, AbstractTerm],
        *,
        seed: int = 0,
        batch_size: int | None = None,
        anchor_every: int | None = None,
        defaults: Defaults | None = None,
        model: torch.nn.Module | None = None,
    ) -> None:
        """Check the constraints, plan minibatches and anchors, and watch the steps."""
        self._optimizer = optimizer = _check_optimizer(optimizer)
        _refuse_ranks()
        self._every = _check_every(optimizer, anchor_every)
        numbers = check_defaults(defaults)
        groups = optimizer.param_groups
        self._parameters = [p for group in groups for p in group["params"]]
        problem = Constrained(self._parameters, constraints, model=model)
        if isinstance(optimizer, OneProjection):
            problem.radius, problem.center = optimizer.ball
        self._problem, self._counts = problem, Counts()
        batch_size = plan_batches(batch_size, problem, numbers)
        at_once = plan_at_once(batch_size, defaults=numbers)
        kind = "anchored" if sees_the_same(problem) else "minibatch"
        plan = plan_anchors(
            None, problem, batch_size, kind, at_once=at_once, defaults=numbers
        )
        bits = "It draws the minibatches of the constraints; 0 when left out."
        seed = check_count("seed", seed, bits, least=0)
        self._generator = torch.Generator().manual_seed(seed)
        self._oracle = Anchored(
            problem,
            None,
            batch_size=batch_size,
            generator=self._generator,
            counts=self._counts,
            plan=plan,
        )
        self._strength = AutoStrength(numbers)
        self._engine = PenaltyEngine(self._oracle, self._strength, every=plan.every)
        self._anchor_size = plan.size
        self._steps = 0  # of the optimizer
        self._center_step: int | None = None  # before which the last centre was
        self._residuals: dict[str, float] = {}
        self._without = 0  # steps in a row without a part of the penalty
        self._finished = False  # and not called since
        self._watch = BackwardWatch(optimizer, problem.parameters, self._before_step)
        if (older := NEWEST.get(optimizer)) is not None:
            older.close()
        NEWEST[optimizer] = self._watch
        weakref.finalize(self, self._watch.close)
        self._new = self.state_dict()  # what a state to load is compared with

    def __repr__(self) -> str:
        """The constraints, and what makes the steps."""
        made_by = type(self._optimizer).__name__
        steps = f"{self._steps} steps of {made_by}"
        return f"AutoPenalty of {at_most_five(self._names)} after {steps}"

    def __call__(self) -> Tensor:
        """Return the penalty on a new minibatch, a scalar to add to the loss.

        Raises:
            InvalidProblemError: Gradients are switched off.
            NonFiniteError: The value of a constraint is NaN or infinite.
        """
        self._check_call()
        self._finished = False
        if self._is_at_center():
            self._center_step = self._steps
            require_autograd(self._problem.parameters, built="AutoPenalty")
            with fresh_casts():
                anchor = self._engine.at_center()
            if anchor is not None:
                self._engine.adapt(anchor)
        values: dict[str, float] = {}
        graphs: dict[str, Tensor] = {}
        for name, constraint in self._problem.constraints.items():
            values[name], graph = self._oracle.estimate(constraint)
            if graph is not None and graph.requires_grad:
                graphs[name] = graph
        self._residuals = values
        penalty = self._strength.penalty
        if not penalty.strengths:  # before the first step there are none
            return self._scalar(0.0, {}, {})
        weights = penalty.weigh(list(values.values()))
        named = dict(zip(values, weights, strict=True))
        pushing = {n: g for n, g in graphs.items() if named[n] != 0}
        return self._scalar(penalty.value(list(values.values())), named, pushing)

    def residuals(self) -> dict[str, float]:
        """Return the last estimate of every constraint minus its bound, by name."""
        return dict(self._residuals)

    def strengths(self) -> dict[str, float]:
        """Return the present strength of every constraint's hinge, by name."""
        strengths = self._strength.penalty.strengths or [0.0] * len(self._names)
        return dict(zip(self._names, strengths, strict=True))

    def finish(
        self,
        objective: AbstractExpression | None = None,
        *,
        on_failure: OnFailure = "raise",
        progress: bool | None = None,
    ) -> Solution:
        """Select the iterate, project it once, and certify the answer.

        The parameters hold the answer afterwards. With ``OneProjection`` that is the
        projection of its last outer iterate, and a call of ``train()`` brings the inner
        iterate back.

        Args:
            objective: The loss on all data, as ``Problem`` takes it: with it the
                solution has the objective and the KKT conditions. Without it they are
                not known, and the certificate is about feasibility.
            on_failure: ``"raise"`` if no feasible point was found, or ``"return"`` the
                solution with its status.
            progress: Show how far the projection is once it takes long.

        Raises:
            InfeasibleError: No feasible point was reached; the parameters hold what was
                trained.

        Example:
            >>> import oneproj
            >>> w = torch.zeros(1, requires_grad=True)
            >>> size = oneproj.function(w.sum) <= 1.0
            >>> penalty = AutoPenalty(torch.optim.SGD([w], lr=0.1), {"size": size})
            >>> objective = oneproj.function(lambda: (w - 3.0).square().sum())
            >>> penalty.finish(objective).objective      # no step was made
            9.0
        """
        self._refuse_if_replaced()
        problem, judged = self._problem, None
        if objective is not None:
            terms = objective, problem.constraints
            judged = Problem(problem.parameters, *terms, model=problem.model)
        if isinstance(self._optimizer, OneProjection):
            self._optimizer.eval()
        self._finished = True
        # Without a model, modules are put into evaluation mode when they are called.
        given = all(holds(c.model, problem.parameters) for c in problem.terms)
        with evaluating_when_called(enabled=not given):
            projection = self._project(on_failure, progress=progress)
            measure = feasibility(problem)
            value, certificate = math.nan, Certificate((measure,), {})
            if judged is not None:
                certificate = certify_run(judged, None, None, measure)
                value = certificate["KKT residual"].details["objective"]
        self._counts.constraint_passes += measure.details["constraint passes"]
        residuals = measure.details["residuals"]
        if projection.status.ok and max(residuals.values(), default=0.0) > 0:
            status = Status.INFEASIBLE  # a constraint is random, say
            projection = replace(projection, status=status, residuals=residuals)
            if on_failure == "raise":
                raise_if_infeasible(projection)
        return Solution(
            status=projection.status,
            objective=value,
            residuals=residuals,
            certificate=certificate,
            counts=replace(self._counts),
            projection=projection,
            settings={
                "optimizer": type(self._optimizer).__name__,
                "updates": self._steps,
                "batch_size": self._oracle.batch_size,
                "anchor_size": self._anchor_size,
                "strengths": self.strengths(),
            },
        )

    def _project(self, on_failure: OnFailure, *, progress: bool | None) -> Projection:
        """Project the parameters, inside the ball of ``OneProjection`` if possible.

        A point that is not feasible can be anywhere: then they hold what was trained.
        """
        parameters, constraints = self._problem.parameters, self._problem.constraints
        trained, ball = snapshot(parameters), safeguard(self._problem)
        onto = [constraints | ball, constraints] if ball else [constraints]
        for number, chosen in enumerate(onto, start=1):
            assign(parameters, trained)
            raising: OnFailure = on_failure if number == len(onto) else "return"
            projection = project(
                parameters, chosen, on_failure=raising, progress=progress
            )
            self._counts.projections += 1
            self._counts.constraint_gradients += projection.gradients * len(constraints)
            self._counts.constraint_passes += projection.gradients * len(constraints)
            if projection.status.ok:
                return projection
        assign(parameters, trained)
        return projection

    def state_dict(self) -> dict[str, Any]:
        """Return all that further updates depend on, beside model and optimizer.

        Take it between two updates: after ``step()`` and before the next penalty.
        """
        return copy.deepcopy(self._state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state; model and optimizer are loaded by you.

        Raises:
            InvalidProblemError: It is not that of a penalty on these constraints and
                parameters; nothing is loaded.
        """
        before = self.state_dict()
        try:
            check_like(state, self._new, "the state")
            self._load(copy.deepcopy(dict(state)))
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            self._load(before)
            message = (
                f"The state does not fit this AutoPenalty: {error}. Pass what its "
                "state_dict() returned, with the same constraints, in the same order, "
                "and the same parameters. Nothing was loaded."
            )
            raise InvalidProblemError(message) from error

    def _state(self) -> dict[str, Any]:
        problem = self._problem
        return {
            "constraints": [f"{n!r}: {c!r}" for n, c in problem.constraints.items()],
            "shapes": [list(p.shape) for p in self._problem.parameters],
            "steps": self._steps,
            "center_step": self._center_step,
            "residuals": self._residuals,
            "generator": self._generator.get_state(),
            "engine": self._engine.state_dict(),
            "counts": vars(self._counts),
        }

    def _load(self, state: dict[str, Any]) -> None:
        for name in ("constraints", "shapes"):
            if state[name] != self._new[name]:
                message = f"{name} are {state[name]}, and here {self._new[name]}"
                raise SchemaError(message)
        state = state_on_devices(state, self._problem.parameters)
        self._engine.load_state_dict(state["engine"])
        self._generator.set_state(state["generator"].cpu())
        vars(self._counts).update(state["counts"])
        self._steps, self._center_step = state["steps"], state["center_step"]
        self._residuals = state["residuals"]
        self._watch.forget()

    @property
    def _names(self) -> list[str]:
        return list(self._problem.constraints)

    def _is_at_center(self) -> bool:
        """Whether this update is the first from a centre; accumulation has no others.

        Another optimizer than ``OneProjection`` has one every ``anchor_every`` steps.
        """
        if self._center_step is None:
            return True
        since = self._steps - self._center_step
        if isinstance(self._optimizer, OneProjection):  # or it was not called there
            late = since >= self._optimizer.inner_steps
            return late or (since > 0 and self._optimizer.at_center)
        return since >= self._every

    def _scalar(
        self, value: float, weights: Mapping[str, float], graphs: Mapping[str, Tensor]
    ) -> Tensor:
        """Return a scalar of this value whose gradient is ``sum_j w_j grad c_j``.

        What it receives in a backward pass is noted.
        """
        first = self._parameters[0]
        wide = torch.promote_types(first.dtype, torch.float32)
        leaf = torch.tensor(value, dtype=wide, device=first.device, requires_grad=True)
        self._watch.follow(leaf, {name: weights[name] for name in graphs})
        if not graphs:
            return leaf
        self._counts.constraint_gradients += len(graphs)
        push = torch.stack([weights[n] * g.to(leaf) for n, g in graphs.items()]).sum()
        return leaf + (push - push.detach())

    @torch.no_grad()
    def _before_step(self) -> None:
        """Add the objective's gradient to the mean; it is in ``.grad``, with the rest.

        A step whose gradient is not finite, as a ``GradScaler`` leaves some, shows
        nothing.
        """
        self._steps += 1
        taken = self._watch.take()
        if taken is None:
            self._warn_if_unused()
            return
        self._without = 0
        (scale, weights), anchor = taken, self._oracle.known
        densify(self._problem.parameters)
        found = gradients(self._problem.parameters)
        if not (scale > 0 and math.isfinite(scale) and math.isfinite(norm(found))):
            return
        less = [(weight, anchor.jacobian[name]) for name, weight in weights.items()]
        self._strength.watch(found, scale=1.0 / scale, less=less)
        if not self._strength.penalty.strengths:
            self._engine.adapt(anchor)

    def _check_call(self) -> None:
        self._refuse_if_replaced()
        if not torch.is_grad_enabled():
            message = (
                "penalty() was called where gradients are switched off "
                "(torch.no_grad()), so nothing could push towards the constraints. "
                "Call it in the training step alone; penalty.residuals() returns the "
                "last estimates, for logs."
            )
            raise InvalidProblemError(message)

    def _refuse_if_replaced(self) -> None:
        if NEWEST.get(self._optimizer) is self._watch:
            return
        message = (
            "A newer AutoPenalty was built on this optimizer and takes the place of "
            "this one: each would project onto its own constraints, and undo the "
            "other's. Put all constraints into one AutoPenalty, and use the newest."
        )
        raise InvalidProblemError(message)

    def _warn_if_unused(self) -> None:
        self._without += not self._finished
        if self._without == STEPS_WITHOUT_PENALTY:
            message = (
                f"{STEPS_WITHOUT_PENALTY} steps in a row had no part of the penalty in "
                "their gradient, so nothing pushes towards the constraints. Add "
                "penalty() to the loss of every update: (loss + penalty()).backward(). "
                "torch.autograd.grad(), and backward(inputs=...), do not reach it."
            )
            warn(message)


def _check_optimizer(optimizer: object) -> Optimizer:
    """Return the optimizer that makes the steps, out of Accelerate's wrapper if any."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if isinstance(inner, Optimizer):
        return inner
    message = (
        f"AutoPenalty needs the optimizer that makes the steps, but got a "
        f"{type(optimizer).__name__}: it watches the gradients, and its anchors follow "
        "the steps. Pass a oneproj.OneProjection or another torch.optim.Optimizer."
    )
    raise InvalidProblemError(message)


def _check_every(optimizer: Optimizer, anchor_every: int | None) -> int:
    if anchor_every is None:
        return BETWEEN_ANCHORS
    if isinstance(optimizer, OneProjection):
        message = (
            f"anchor_every={anchor_every} has no effect beside OneProjection, whose "
            "centres are the anchors. Give it inner_steps, or leave anchor_every out."
        )
        raise InvalidProblemError(message)
    why = "It is how many steps lie between two evaluations on all data."
    return check_count("anchor_every", anchor_every, why)


def _refuse_ranks() -> None:
    ranks = world_size()
    if ranks > 1:
        message = (
            f"AutoPenalty runs in one process, but this process group has {ranks} "
            "ranks: each would estimate strengths from its own gradients, and the "
            "ranks would drift apart. Train with a penalty of a given strength, "
            "oneproj.Hinge, and call oneproj.project with the same data on every rank."
        )
        raise InvalidProblemError(message)
