"""General solvers on the same problems, such as SLSQP and IPOPT.

A peer minimises ``(1/2)|z - x|^2`` over flat points z in float64. It gets the values
and gradients of the same constraints that the projection gets; a box and the signs of
a simplex are bounds of its own, the total of a simplex is a linear equation, and any
other set is its signed distance. No peer gets second derivatives. A peer is stopped
after 1,000 gradients or a limit of processor seconds; its last point is its answer.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from benchmarks.projection.cases import Case
from oneproj.problem.terms import AbstractTerm
from oneproj.sets import Box, Simplex
from oneproj.sets.base import SetConstraint
from oneproj.vectors.arithmetic import Array, assign, flat, unflat

BUDGET = 1000
"""Gradients after which a peer is stopped where it is."""
LARGEST = 2000
"""Parameters up to which the dense square matrices of these solvers make sense."""
STOPPED = "stopped"
"""The error of a run that was ended by a limit."""
INFINITE = 1e20
"""What IPOPT takes for no bound."""
IPOPT_STOPPED = (-1, -4, -5)
"""What IPOPT returns at its limit of iterations, processor time and time."""


class StoppedError(Exception):
    """The limit of gradients or of seconds is reached."""


@dataclass
class Functions:
    """A case as functions of a flat point; counts the points that it is asked about.

    ``gradients`` counts points at which a gradient of any constraint was asked for,
    ``values`` points at which values were.
    """

    case: Case
    ends: float = float("inf")
    """When to stop: seconds of ``time.process_time``."""
    stops: bool = True
    gradients: int = 0
    values_seen: int = 0
    start: Array = field(init=False)
    lower: Array = field(init=False)
    upper: Array = field(init=False)
    totals: list[tuple[Array, float]] = field(init=False, default_factory=list)
    """Linear equations ``row @ z = total``."""

    def __post_init__(self) -> None:
        """Sort the constraints into bounds, equations and functions."""
        self.start = flat(self.case.parameters)
        self.lower = np.full(len(self.start), -np.inf)
        self.upper = np.full(len(self.start), np.inf)
        self._terms: list[AbstractTerm] = []
        self._at: dict[str, Array] = {}
        for term in self.case.constraints.values():
            members = term.members if isinstance(term, SetConstraint) else None
            if isinstance(members, Box):
                self._bound(term, members.lower, members.upper)
            elif isinstance(members, Simplex):
                self._bound(term, torch.tensor(0.0), torch.tensor(np.inf))
                self.totals.append((self._place(term), members.total))
            else:
                self._terms.append(term)

    @property
    def count(self) -> int:
        """How many functions there are."""
        return len(self._terms)

    def _place(self, term: AbstractTerm) -> Array:
        """1 for every coordinate of the tensor of a set, else 0."""
        own = term.tensor if isinstance(term, SetConstraint) else None
        parts = [torch.full_like(p, float(p is own)) for p in self.case.parameters]
        return flat(parts)

    def _bound(self, term: AbstractTerm, low: torch.Tensor, high: torch.Tensor) -> None:
        inside = self._place(term) > 0
        size = int(inside.sum())
        for whole, bound in ((self.lower, low), (self.upper, high)):
            whole[inside] = bound.double().flatten().expand(size).numpy()

    def move(self, z: Array) -> None:
        """Write a flat point into the parameters."""
        assign(self.case.parameters, unflat(z, self.case.parameters))

    def values(self, z: Array) -> Array:
        """The values of the functions, feasible where <= 0."""
        if "values at" not in self._at or not np.array_equal(self._at["values at"], z):
            self._tick()
            self.values_seen += 1
            self.move(z)
            found = np.array([term.value() for term in self._terms])
            self._at |= {"values at": z.copy(), "values": found}
        return self._at["values"]

    def slopes(self, z: Array) -> Array:
        """The gradients of the functions, a row each."""
        if "slopes at" not in self._at or not np.array_equal(self._at["slopes at"], z):
            self._tick()
            self.gradients += 1
            self.move(z)
            rows = [
                flat(term.value_and_gradient(self.case.parameters)[1])
                for term in self._terms
            ]
            self._at |= {"slopes at": z.copy(), "slopes": np.array(rows)}
        return self._at["slopes"]

    def half_square(self, z: Array) -> float:
        """The objective: half the squared distance."""
        return 0.5 * float((z - self.start) @ (z - self.start))

    def _tick(self) -> None:
        if self.stops and (self.gradients >= BUDGET or time.process_time() > self.ends):
            raise StoppedError


def slsqp(f: Functions, limit: float) -> Array:
    """SLSQP of SciPy; the objective has to settle to 1e-10."""
    del limit
    return _scipy(f, "SLSQP", {"maxiter": BUDGET, "ftol": 1e-10})


def trust_constr(f: Functions, limit: float) -> Array:
    """The interior-point method of SciPy, with its default tolerances of 1e-8."""
    del limit
    return _scipy(f, "trust-constr", {"maxiter": BUDGET})


def _scipy(f: Functions, method: str, options: dict[str, Any]) -> Array:
    from scipy.optimize import (
        BFGS,
        Bounds,
        LinearConstraint,
        NonlinearConstraint,
        minimize,
    )
    from scipy.sparse import identity

    limits: list[Any] = [LinearConstraint(row, t, t) for row, t in f.totals]
    if f.count:
        curved = {"hess": BFGS()} if method == "trust-constr" else {}
        limits.append(
            NonlinearConstraint(f.values, -np.inf, 0.0, jac=f.slopes, **curved)
        )
    exact = (
        {"hess": lambda z: identity(len(z), format="csc")}
        if method == "trust-constr"
        else {}
    )
    bounded = np.isfinite(f.lower).any() or np.isfinite(f.upper).any()
    begin = np.clip(f.start, f.lower, f.upper)
    done = minimize(
        f.half_square,
        begin,
        jac=lambda z: z - f.start,
        constraints=limits,
        bounds=Bounds(f.lower, f.upper) if bounded else None,
        method=method,
        options=options,
        **exact,
    )
    answer: Array = done.x
    return answer


def ipopt(f: Functions, limit: float) -> Array:
    """IPOPT through cyipopt, with its limited-memory Hessian and default tolerances."""
    import cyipopt

    rows = np.array([row for row, _ in f.totals]).reshape(-1, len(f.start))
    totals = np.array([total for _, total in f.totals])

    class Problem:
        def objective(self, z: Array) -> float:
            return f.half_square(z)

        def gradient(self, z: Array) -> Array:
            return z - f.start

        def constraints(self, z: Array) -> Array:
            return np.concatenate([f.values(z), rows @ z])

        def jacobian(self, z: Array) -> Array:
            slopes = f.slopes(z).reshape(-1, len(z))
            return np.concatenate([slopes, rows]).ravel()

    problem = cyipopt.Problem(
        n=len(f.start),
        m=f.count + len(rows),
        problem_obj=Problem(),
        lb=np.maximum(f.lower, -INFINITE),
        ub=np.minimum(f.upper, INFINITE),
        cl=np.concatenate([np.full(f.count, -INFINITE), totals]),
        cu=np.concatenate([np.zeros(f.count), totals]),
    )
    f.stops = False  # no exception would pass through it: it ends by itself
    for name, value in (
        ("print_level", 0),
        ("sb", "yes"),
        ("hessian_approximation", "limited-memory"),
        ("max_iter", BUDGET),
        ("max_cpu_time", float(limit)),
    ):
        problem.add_option(name, value)
    answer: Array
    answer, about = problem.solve(np.clip(f.start, f.lower, f.upper))
    if about["status"] in IPOPT_STOPPED:
        f.move(answer)
        raise StoppedError
    return answer


def augmented_lagrangian(f: Functions, limit: float) -> Array:
    """Multipliers and a penalty outside, L-BFGS-B of SciPy inside.

    The penalty begins at 10 and grows tenfold when a round leaves more than a quarter
    of the violation. It ends at a violation of 1e-8 with settled multipliers, or after
    50 rounds.
    """
    del limit
    from scipy.optimize import Bounds, minimize

    rows = np.array([row for row, _ in f.totals]).reshape(-1, len(f.start))
    totals = np.array([total for _, total in f.totals])
    mu, nu, rho = np.zeros(f.count), np.zeros(len(rows)), 10.0
    z, before = np.clip(f.start, f.lower, f.upper), np.inf

    def smooth(z: Array) -> tuple[float, Array]:
        values, gap = f.values(z), rows @ z - totals
        push, pull = np.maximum(mu + rho * values, 0.0), nu + rho * gap
        value = f.half_square(z) + (push @ push + pull @ pull) / (2.0 * rho)
        slope = z - f.start + pull @ rows
        if push.any():
            slope = slope + push @ f.slopes(z)
        return float(value), slope

    for _ in range(50):
        inner = {"maxiter": BUDGET, "maxfun": BUDGET, "ftol": 1e-14, "gtol": 1e-8}
        bounds = Bounds(f.lower, f.upper)
        z = minimize(
            smooth, z, jac=True, method="L-BFGS-B", bounds=bounds, options=inner
        ).x
        values, gap = f.values(z), rows @ z - totals
        new = np.maximum(mu + rho * values, 0.0)
        left = float(
            np.abs(np.concatenate([np.maximum(values, -mu / rho), gap])).max(initial=0)
        )
        mu, nu = new, nu + rho * gap
        if left <= 1e-8:  # noqa: PLR2004 - said above
            break
        rho, before = (10.0 * rho if left > before / 4 else rho), left
    return z


PEERS: dict[str, Callable[[Functions, float], Array]] = {
    "SLSQP": slsqp,
    "IPOPT": ipopt,
    "trust-constr": trust_constr,
    "augmented Lagrangian": augmented_lagrangian,
}
"""Name to solver: takes the functions and seconds, returns the answer."""


def why_not(name: str, case: Case) -> str | None:
    """Why a peer does not run on a case; None if it does.

    Example:
        >>> w = torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)
        >>> why_not("SLSQP", Case([w], {}))
        'float64 only'
    """
    if name == "IPOPT" and find_spec("cyipopt") is None:
        return "cyipopt is not installed"
    if any(p.dtype != torch.float64 for p in case.parameters):
        return "float64 only"
    size = sum(p.numel() for p in case.parameters)
    return f"dense matrices of {size} rows" if size > LARGEST else None


def solve(name: str, case: Case, limit: float) -> dict[str, Any]:
    """Run a peer and leave its answer in the parameters; what it used.

    A peer that runs out of time leaves the last point that it asked about.
    """
    f = Functions(case, ends=time.process_time() + limit)
    stopped = False
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            answer = PEERS[name](f, limit)
        except StoppedError:
            stopped = True
        else:
            if np.isfinite(answer).all():
                f.move(answer)
    return {
        "gradients": f.gradients,
        "values": f.values_seen,
        **({"error": STOPPED} if stopped else {}),
    }
