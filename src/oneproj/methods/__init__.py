"""The methods: one file each, all behind the interface of ``base.py``.

``algorithm1`` runs the paper's Algorithm 1, whose arithmetic is ``one_projection``.
The others are baselines with the same interface. A method is a name or an object:
``solve(problem, method="projected-sgd", lr=0.1)`` is the same as
``solve(problem, method=oneproj.methods.ProjectedSGD(lr=0.1))``. One of your own is an
``AbstractMethod``, passed to ``solve`` as an object. Its ``begin`` gets a ``Context``.
"""

from oneproj.methods.algorithm1 import Algorithm1 as Algorithm1
from oneproj.methods.auto import Auto as Auto
from oneproj.methods.base import AbstractMethod as AbstractMethod
from oneproj.methods.base import AbstractUpdater as AbstractUpdater
from oneproj.methods.base import Context as Context
from oneproj.methods.lagrangian import Lagrangian as Lagrangian
from oneproj.methods.penalty_sgd import PenaltySGD as PenaltySGD
from oneproj.methods.projected_sgd import ProjectedSGD as ProjectedSGD
from oneproj.methods.slsqp import SLSQP as SLSQP
from oneproj.methods.switching_subgradient import (
    SwitchingSubgradient as SwitchingSubgradient,
)

METHODS: dict[str, type[AbstractMethod]] = {
    method.name: method
    for method in (
        Algorithm1,
        ProjectedSGD,
        PenaltySGD,
        Lagrangian,
        SwitchingSubgradient,
        SLSQP,
        Auto,
    )
}
"""Every method that has a name."""
