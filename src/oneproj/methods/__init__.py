"""The methods: one file each, all behind the interface of ``base.py``."""

from oneproj.methods.base import AbstractMethod
from oneproj.methods.penalized import Penalized
from oneproj.methods.projected_sgd import ProjectedSGD

METHODS: dict[str, type[AbstractMethod]] = {
    method.name: method for method in (Penalized, ProjectedSGD)
}
"""Every method by name."""
