"""The methods: one file each, all behind the interface of ``base.py``."""

from oneproj.errors import InvalidProblemError
from oneproj.methods.base import AbstractMethod
from oneproj.methods.penalized import Penalized
from oneproj.methods.projected_sgd import ProjectedSGD

METHODS: dict[str, type[AbstractMethod]] = {
    method.name: method for method in (Penalized, ProjectedSGD)
}
"""Every method by name."""


def choose_method(name: str) -> type[AbstractMethod]:
    """The method of that name.

    Example:
        >>> choose_method("one-projection").name
        'one-projection'
    """
    if name in METHODS:
        return METHODS[name]
    message = f"There is no method {name!r}. Known: {', '.join(METHODS)}."
    raise InvalidProblemError(message)
