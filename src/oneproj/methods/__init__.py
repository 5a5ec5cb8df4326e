"""The methods: one file each, all behind the interface of ``base.py``.

``penalized`` runs the paper's Algorithm 1, which is ``one_projection``. ``optimizer``
has what that is made of, ``practice`` what a run adds to it. Its rivals share
``ball_step`` and ``answer``; ``slsqp`` has ``sqp`` to itself.
"""

from oneproj.errors import InvalidProblemError
from oneproj.methods.algorithm1 import Penalized
from oneproj.methods.auto import Auto
from oneproj.methods.base import AbstractMethod
from oneproj.methods.lagrangian import Lagrangian
from oneproj.methods.penalty_sgd import PenaltySGD
from oneproj.methods.projected_sgd import ProjectedSGD
from oneproj.methods.slsqp import SLSQP
from oneproj.methods.switching_subgradient import SwitchingSubgradient

METHODS: dict[str, type[AbstractMethod]] = {
    method.name: method
    for method in (
        Penalized,
        ProjectedSGD,
        PenaltySGD,
        Lagrangian,
        SwitchingSubgradient,
        SLSQP,
        Auto,
    )
}
"""Every method by name."""


def choose_method(name: str) -> type[AbstractMethod]:
    """The method of that name.

    Example:
        >>> choose_method("one-projection").name
        'one-projection'
    """
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    message = f"There is no method {name!r}. Known: {', '.join(METHODS)}."
    raise InvalidProblemError(message)
