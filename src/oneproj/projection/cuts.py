"""``"cuts"``: the projector for constraints that are functions, the default.

Linearisations of the constraints, and the nearest point of what they leave: all of
them, for convex constraints (``convex.py``); those at the present point, for others
(``sqp.py``). What it costs is full constraint gradients; everything else is a few
inner products of parameter-size vectors.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from oneproj.arguments import check_count, check_number, read_bytes
from oneproj.errors import InvalidProblemError, NonFiniteError, old_argument
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.bundle import SPARE, Bundle
from oneproj.projection.closed_form import (
    move_into_sets,
    project_onto_sets,
    remove_rounding_from_sets,
)
from oneproj.projection.convex import (
    move_inside_noise,
    project_convex,
    project_within_any,
)
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.largest import has_largest, project_largest
from oneproj.projection.local_model import LocalWarmStart
from oneproj.projection.report import (
    describe,
    describe_convex,
    describe_local,
    distance_to_solution,
    multipliers_within_sets,
    relative_residual,
    stationary_remark,
)
from oneproj.projection.screening import screen
from oneproj.projection.sqp import Sqp
from oneproj.projection.tolerances import TOLERANCES
from oneproj.projection.within_sets import SetBundle, seems_linear_within_sets
from oneproj.results import NEAREST, Projection
from oneproj.schema import check_like
from oneproj.sets.region import Region, boxes_of, region_of
from oneproj.vectors.arithmetic import Vector, assign, dimension, on_devices, snapshot
from oneproj.vectors.space import space_around

NEARER_THAN_PROVEN = (
    "The lower bound is withdrawn: the answer is nearer than the cuts allow, so a "
    "constraint that is declared convex is not."
)
"""What to say of an answer that refutes the proof of its distance."""


@old_argument("progress", "min_gain")
@old_argument("capacity", "memory")
class Cuts(AbstractProjector):
    """Projects by linearisation: exactly if all constraints are convex, else locally.

    If every constraint is declared convex (``curvature="convex"`` of its term, or a
    convex set), the answer is the nearest feasible point to the ``tolerance``, and
    ``lower_bound`` proves how much nearer another could be. Otherwise it satisfies the
    KKT conditions of the projection problem to ``kkt_residual``, as points that are
    nearest locally do.

    Args:
        tolerance: Convex: stop when the distance is proven to this share of it.
            Nonconvex: stop at this relative KKT residual. 0 runs on to rounding.
        min_gain: Nonconvex: stop when the model predicts a gain below this share of
            half the squared distance. 0 runs on to the tolerance, for constraints
            without kinks.
        max_evaluations: Full constraint gradients after which to stop improving; None
            for 200, or more if the constraints are convex and the parameters are many.
            Where no feasible point was seen by then, or one behind a plateau, other
            ways may take several times as many.
        memory: What to keep beyond the model: a number of parameter-size vectors, or
            bytes as text, such as ``"2 GB"``. None for 16 vectors from a million
            parameters on, and for as many as help below. The search keeps at least a
            few vectors more than there are constraints, four times as many where they
            are not convex, and the gradients of the last points. With the least a
            smooth convex constraint is projected onto as exactly as with more; at kinks
            up to a percent of the distance is lost, which ``lower_bound`` shows.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
        >>> square = oneproj.function(lambda: w.square().sum(), curvature="convex")
        >>> done = oneproj.project(w, {"disc": square <= 1.0}, projector=Cuts())
        >>> done.residuals["disc"] <= 0
        True
        >>> round(done.distance, 5), round(done.lower_bound, 5), done.gradients < 10
        (1.0, 1.0, True)
    """

    name = "cuts"

    def __init__(
        self,
        *,
        tolerance: float = 1e-6,
        min_gain: float = 1e-4,
        max_evaluations: int | None = None,
        memory: int | str | None = None,
    ) -> None:
        """Check and keep the settings."""
        residual, gain = "It is a relative residual.", "It is a share of a gain."
        self._tolerance = check_number("tolerance", tolerance, residual, zero=True)
        self._min_gain = check_number("min_gain", min_gain, gain, zero=True)
        self._max_evaluations, self._memory = max_evaluations, memory
        if max_evaluations is not None:
            counts = "It counts full constraint gradients; None for the default."
            self._max_evaluations = check_count(
                "max_evaluations", max_evaluations, counts
            )
        if isinstance(memory, str):
            read_bytes("memory", memory)
        elif memory is not None:
            vectors = 'It counts vectors that are kept, or is bytes as text: "2 GB".'
            self._memory = check_count("memory", memory, vectors)
        self._warm, self._splits = False, True
        self._past: WarmStart | None = None

    def warm(self) -> Cuts:
        """A projector like this one that begins with what the last projection learned.

        Near the last start it takes fewer gradients. Cuts of convex constraints stay
        valid, so the answer is the nearest point as ever, proven by ``lower_bound``.
        For others multipliers and curvature are a first guess, and it stops earlier at
        kinks, where the next start is not far. Convex functions within closed-form sets
        take few gradients anyway, and begin anew.

        All is forgotten with other parameters or constraints, other objects that is; a
        change of what a constraint reads, such as its data, goes unnoticed.
        """
        projector = copy.copy(self)
        projector._warm, projector._past = True, None  # noqa: SLF001 - its own class
        return projector

    def state_dict(self) -> dict[str, Any] | None:
        """What the last projection learned; None for nothing."""
        return None if self._past is None else self._past.state()

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
    ) -> None:
        """Go on from such a state; what was learned of other constraints is dropped."""
        limits = self._limits(parameters, constraints)
        self._past = WarmStart.of_state(state, parameters, constraints, **limits)

    def _limits(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> dict[str, int]:
        """How much is kept at most."""
        cuts = self._convex_room(parameters, constraints)
        vectors = self._local_room(parameters, constraints)
        return {"cuts": cuts, "vectors": vectors}

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """Every constraint has a gradient, so any will do."""
        del constraints
        return None

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        """Project in place and report."""
        convex = _are_convex(constraints)
        # Where memory is short there is none for the gradients of many examples.
        splits = self._splits and self._vectors(parameters) is None
        if splits and not convex and has_largest(constraints):
            limit = self._max_evaluations or TOLERANCES.gradients
            return project_largest(parameters, constraints, self._project_whole, limit)
        past = self._recall(parameters, constraints)
        suspects = None if past is None else past.suspects()
        evaluator = Evaluator(
            parameters, constraints, differentiate_all=not convex, suspects=suspects
        )
        try:
            if evaluator.first.worst <= 0:
                self._past = past
                return describe(evaluator, evaluator.best, 0.0)
            region = region_of(parameters, constraints)
            nearest = project_onto_sets(evaluator, region)
            if nearest is not None:
                self._past = past
                return nearest
            if convex:
                return (
                    self._project_within(evaluator, region)
                    if region.places
                    else self._project_convex(evaluator, past)
                )
            found = self._project_as_linear(evaluator, region)
            if found is None and not region.convex:
                return self._project_within_any(evaluator, region, past)
            return found or self._project_local(evaluator, past)
        except BaseException:
            # NaN at a visited point, or Ctrl-C: leave the best point, not that one.
            evaluator.return_to_best()
            raise

    def _project_whole(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        max_evaluations: int,
    ) -> Projection:
        """Project in place; a bound on a largest value is one function."""
        projector = copy.copy(self)
        projector._max_evaluations = max_evaluations  # noqa: SLF001 - its own class
        projector._splits = False  # noqa: SLF001 - its own class
        return projector.project(parameters, constraints)

    def _recall(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> WarmStart | None:
        """Take the past, if it is that of this problem; an error leaves none."""
        past, self._past = self._past, None
        if past is not None and past.concerns(parameters, constraints):
            return past
        return None

    @np.errstate(over="ignore", invalid="ignore")  # such a point is not evaluated
    def _project_convex(
        self, evaluator: Evaluator, past: WarmStart | None
    ) -> Projection:
        room = self._convex_room(evaluator.parameters, evaluator.constraints)
        known = None if past is None else past.cuts_from(evaluator)
        bundle = known or Bundle(room)
        facets = min(room, dimension(evaluator.parameters))
        budget = self._max_evaluations or max(
            TOLERANCES.gradients, TOLERANCES.gradients_per_dimension * facets
        )
        empty = project_convex(
            evaluator, bundle, max_evaluations=budget, tolerance=self._tolerance
        )
        if not (empty or evaluator.is_rounding(evaluator.best)):
            return self._project_anew(evaluator, bundle)
        remove_rounding_from_sets(evaluator)
        move_inside_noise(evaluator)
        done = describe_convex(
            evaluator, bundle, *distance_to_solution(evaluator, bundle), {}, empty=empty
        )
        # Without a bound a declaration is refuted, and the cuts are not valid.
        if self._warm and not (done.lower_bound is None or bundle.excludes_all):
            self._past = WarmStart.of(evaluator, cuts=bundle)
        return done

    def _project_anew(self, evaluator: Evaluator, bundle: Bundle) -> Projection:
        """Project locally where the cuts used up their gradients without an answer.

        Of an ellipsoid with axes of very different lengths a gradient shows one facet.
        What they prove holds for any answer. If there is none, the better point counts.
        """
        missed = describe_convex(
            evaluator, bundle, *distance_to_solution(evaluator, bundle), {}, empty=False
        )
        point = evaluator.best_point
        with evaluator.second_search() as again:
            found = self._project_local(again, None)
        if found.status.ok or _worst(found) <= _worst(missed):
            bound, remark = missed.lower_bound, found.remark
            if bound is None:
                remark = missed.remark
            elif found.status.ok and found.distance < bound:
                bound, remark = None, NEARER_THAN_PROVEN
            return replace(found, lower_bound=bound, remark=remark)
        assign(evaluator.parameters, point)
        return replace(missed, gradients=found.gradients, history=found.history)

    def _project_within(self, evaluator: Evaluator, region: Region) -> Projection:
        room = self._convex_room(evaluator.parameters, evaluator.constraints)
        budget = self._max_evaluations or TOLERANCES.gradients
        bundle = SetBundle(region, evaluator.origin, room)
        empty = project_convex(
            evaluator, bundle, max_evaluations=budget, tolerance=self._tolerance
        )
        remove_rounding_from_sets(evaluator)
        if evaluator.best.worst > 0 and not empty:
            return self._project_convex(evaluator, None)
        move_inside_noise(evaluator)
        left, far = distance_to_solution(evaluator, bundle)
        normals = bundle.unit_normals()
        return describe_convex(evaluator, bundle, left, far, normals, empty=empty)

    def _project_as_linear(
        self, evaluator: Evaluator, region: Region
    ) -> Projection | None:
        """Project within sets if the functions seem linear; None if they do not."""
        if not (
            region.convex and region.places and seems_linear_within_sets(evaluator)
        ):
            return None
        try:
            found = self._project_within(evaluator, region)
        except InvalidProblemError:  # an undeclared function is not linear
            return None
        if not found.status.ok:
            return None
        # What the cuts prove holds for linear functions, and these only seem to be.
        multipliers, left = multipliers_within_sets(evaluator, region)
        residual = relative_residual(left, found.distance)
        if residual > NEAREST.kkt_residual:
            return None
        return replace(
            found, lower_bound=None, multipliers=multipliers, kkt_residual=residual
        )

    def _project_within_any(
        self, evaluator: Evaluator, region: Region, past: WarmStart | None
    ) -> Projection:
        """Project within sets of which one is not convex, and locally if in doubt.

        The nearer of the two answers counts.
        """
        room = self._convex_room(evaluator.parameters, evaluator.constraints)
        few = self._max_evaluations or TOLERANCES.gradients
        near, sure = project_within_any(
            evaluator, region, capacity=room, max_evaluations=few
        )
        spent = evaluator.evaluations >= few
        if near is not None and (sure or spent):
            return near
        point = evaluator.best_point
        with evaluator.second_search() as again:
            found = self._project_local(again, past)
        if near is None or (found.status.ok and found.distance <= near.distance):
            return found
        assign(evaluator.parameters, point)
        return replace(near, gradients=found.gradients, history=found.history)

    @np.errstate(over="ignore", invalid="ignore")  # such a merit is not taken
    def _project_local(
        self, evaluator: Evaluator, past: WarmStart | None
    ) -> Projection:
        """Search locally, or by cuts once that is slow and the functions seem convex.

        A search that begins with the models of the last one never changes to cuts.
        """
        carried = None if past is None else past.models
        budget = self._max_evaluations or TOLERANCES.gradients
        limit = evaluator.evaluations - 1 + budget
        screens = not self._warm and evaluator.best is evaluator.first
        models = None
        if screens:
            # So much slack costs half as much of the squared distance as a gain that
            # is worth a step with these models.
            slack = 0.5 * TOLERANCES.coarse * self._min_gain
            models = screen(evaluator, self._search_sampled, slack)
        search, within = self._local_search(evaluator, models or carried)
        if models is not None:
            search.resume()
        bundle, steady = None, True
        while steady and evaluator.evaluations < limit:
            before = evaluator.best.worst
            few = evaluator.evaluations + TOLERANCES.local_first
            soon = limit if carried is not None else min(few, limit)
            search.run(soon, last=soon == limit)
            if search.converged or search.stationary:
                break
            steady = 0 < evaluator.best.worst <= TOLERANCES.local_steady * before
        else:
            bundle = self._try_as_convex(evaluator, search, limit)
        region = region_of(evaluator.parameters, evaluator.constraints)
        if evaluator.best.worst > 0 and region.places:
            move_into_sets(evaluator, region)
        remove_rounding_from_sets(evaluator)
        move_inside_noise(evaluator)
        search.resume()
        if self._warm and within and evaluator.best.worst <= 0:
            self._past = WarmStart.of(evaluator, models=search.carry())
        found = describe_local(
            evaluator, search.multipliers(), bundle, region, self._tolerance
        )
        if search.stationary and not found.status.ok:
            return replace(found, remark=stationary_remark(evaluator))
        return found

    def _search_sampled(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        models: LocalWarmStart | None,
    ) -> LocalWarmStart:
        """Search locally, and leave the parameters at the best point."""
        evaluator = Evaluator(parameters, constraints, differentiate_all=True)
        search, _ = self._local_search(evaluator, models)
        search.run(self._max_evaluations or TOLERANCES.gradients)
        evaluator.return_to_best()
        return search.carry()

    def _local_search(
        self, evaluator: Evaluator, carried: LocalWarmStart | None
    ) -> tuple[Sqp, bool]:
        """A local search, and whether it stays within the boxes."""
        boxes = boxes_of(evaluator.parameters, evaluator.constraints)
        make = partial(
            Sqp,
            evaluator,
            min_gain=self._min_gain,
            tolerance=self._tolerance,
            room=self._local_room(evaluator.parameters, evaluator.constraints),
        )
        try:
            return make(boxes, carried=carried), True
        except NonFiniteError:  # the functions have no value in the sets, or hardly
            return make(Region(evaluator.parameters, {})), False

    def _try_as_convex(
        self, evaluator: Evaluator, search: Sqp, limit: int
    ) -> Bundle | None:
        """Search by cuts if the functions seem convex, and locally if that fails.

        Returns:
            The cuts that found the best point; None if the local search did.
        """
        room = self._convex_room(evaluator.parameters, evaluator.constraints)
        bundle: Bundle | None = None
        if search.may_be_convex():
            # A contradiction shows that they are not convex after all.
            with suppress(InvalidProblemError):
                cuts = Bundle(room)
                project_convex(evaluator, cuts, max_evaluations=limit, declared=False)
                bundle = cuts
        search.resume()
        if bundle is None or not bundle.multipliers() or evaluator.best.worst > 0:
            search.run(limit)
        return bundle

    def _convex_room(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> int:
        """How many cuts of convex constraints are kept."""
        most = self._vectors(parameters)
        if most is None:
            numbers = TOLERANCES.cut_numbers // dimension(parameters)
            most = max(TOLERANCES.vectors, min(TOLERANCES.cuts, numbers))
        return max(most, len(constraints) + 2 * SPARE)

    def _vectors(self, parameters: Vector) -> int | None:
        """How many parameter-size vectors may be kept; None for as many as help."""
        if isinstance(self._memory, str):
            size = sum(p.numel() * p.element_size() for p in parameters)
            return read_bytes("memory", self._memory) // max(size, 1)
        if self._memory is None and dimension(parameters) >= TOLERANCES.large:
            return TOLERANCES.large_vectors
        return self._memory

    def _local_room(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> int:
        """How many vectors the basis of the local search has at most."""
        size, count = dimension(parameters), len(constraints)
        most, whole = self._vectors(parameters), TOLERANCES.whole_space
        if most is None:
            plain = max(TOLERANCES.vectors, 4 * count + SPARE)
            return whole if size <= whole else plain
        # The start, the best point and two sums; gradients at four points.
        return max(most - 4 - 4 * count, 4 * count + SPARE + 2)


def _are_convex(constraints: Mapping[str, AbstractTerm]) -> bool:
    return all(c.curvature in ("convex", "linear") for c in constraints.values())


def _worst(projection: Projection) -> float:
    return max(projection.residuals.values())


@dataclass(frozen=True)
class WarmStart:
    """What the last projection learned, and the problem that it belongs to.

    A cut of a convex constraint is valid for good, wherever the next start is: only its
    offset is measured from there. Local models are a guess at what the next ones will
    be. What they are models of must not have changed, and that is judged by identity:
    other objects, other past.
    """

    parameters: list[Tensor]
    constraints: dict[str, AbstractTerm]
    origin: list[Tensor]
    cuts: Bundle | None = None
    models: LocalWarmStart | None = None

    @classmethod
    def of(
        cls,
        evaluator: Evaluator,
        *,
        cuts: Bundle | None = None,
        models: LocalWarmStart | None = None,
    ) -> WarmStart:
        """Keep what was learned, and the evaluator's problem and origin with it."""
        parameters, constraints = (
            list(evaluator.parameters),
            dict(evaluator.constraints),
        )
        return cls(parameters, constraints, evaluator.origin, cuts, models)

    def concerns(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> bool:
        """Whether these are its very parameters and constraints, or copies of these."""
        same = [*map(id, parameters)] == [*map(id, self.parameters)]
        return same and _identities(constraints) == _identities(self.constraints)

    def suspects(self) -> list[str]:
        """The constraints that held the last answer back, and may the next."""
        if self.cuts is None:
            return []
        return [name for name, mu in self.cuts.multipliers().items() if mu > 0]

    def cuts_from(self, evaluator: Evaluator) -> Bundle | None:
        """The cuts for displacements from another origin, that of the evaluator."""
        if self.cuts is not None:
            pack = evaluator.space.pack
            self.cuts.shift(pack(evaluator.origin).minus(pack(self.origin)))
        return self.cuts

    def state(self) -> dict[str, Any]:
        """All of it as plain data; the problem is that of whoever loads it."""
        return {
            "constraints": list(self.constraints),
            "origin": self.origin,
            "cuts": None if self.cuts is None else self.cuts.state(),
            "models": None if self.models is None else self.models.state(),
        }

    @classmethod
    def of_state(
        cls,
        state: Mapping[str, Any],
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        *,
        cuts: int,
        vectors: int,
    ) -> WarmStart | None:
        """The past of such a state; None if it is of other constraints.

        At the edge of the safeguard ball the ball is one of them, made anew for every
        projection: nothing is remembered from there, resumed or not.
        """
        if state["constraints"] != list(constraints):
            return None
        parts = {"constraints": [], "origin": parameters, "cuts": None, "models": None}
        check_like(state, parts, "projector")
        bundle, models = None, None
        if state["cuts"] is not None:
            bundle = Bundle(cuts)
            bundle.load_state(state["cuts"], parameters, list(constraints))
        if state["models"] is not None:
            sets = boxes_of(parameters, constraints).places
            space = space_around(snapshot(parameters))
            functions = len(constraints) - len(sets)
            models = LocalWarmStart.of_state(state["models"], functions, space, vectors)
        origin = on_devices(state["origin"], parameters)
        return cls(list(parameters), dict(constraints), origin, bundle, models)


def _identities(constraints: Mapping[str, AbstractTerm]) -> dict[str, int]:
    """What was made as a constraint, whatever name and model it was given since."""
    return {name: id(term.original) for name, term in constraints.items()}
