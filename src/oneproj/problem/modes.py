"""Modules with two modes: put into evaluation mode, or caught training.

In training mode dropout is random, batch norm depends on the rest of the batch and
spectral norm changes with every call, so a constraint that they take part in has no one
value there.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm


@contextmanager
def evaluating(model: nn.Module | None) -> Iterator[None]:
    """Put a model into evaluation mode while the block runs; None for no model.

    Every module then gets back the mode that it had, also after an error.

    Example:
        >>> model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
        >>> _ = model[1].eval()                        # one of them is frozen
        >>> with evaluating(model):
        ...     model.training, model[0].training
        (False, False)
        >>> model.training, model[0].training, model[1].training
        (True, True, False)
    """
    modes = [] if model is None else [(m, m.training) for m in model.modules()]
    if model is None or not any(training for _, training in modes):
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])
        for module, training in modes:
            module.training = training


@contextmanager
def settled(model: nn.Module | None) -> Iterator[None]:
    """Let norms keep their running statistics while the block runs, and use them.

    The rest of the model keeps its mode, and the norms get theirs back.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
        >>> with settled(model):
        ...     model[0].training, model[1].training
        (False, True)
        >>> model[0].training
        True
    """
    modules = () if model is None else model.modules()
    with without_training(m for m in modules if m.training and _has_statistics(m)):
        yield


@contextmanager
def evaluating_when_called(*, enabled: bool = True) -> Iterator[list[nn.Module]]:
    """Put modules that have two modes into evaluation mode as they are called.

    That is before they run, so that no norm gathers statistics of what is only tried,
    and by this thread: others may train theirs meanwhile. Yields those that were in
    training mode, which the block fills; none where it is not enabled. At the end they
    train again.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> with evaluating_when_called() as found:
        ...     _ = model(torch.ones(1, 2))
        >>> found, model[1].training, model[1].running_mean.tolist()
        ([BatchNorm1d(2, eps=1e-05, ...)], True, [0.0, 0.0])
    """
    found: list[nn.Module] = []
    own = threading.get_ident()

    def switch(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        del given
        if not module.training or threading.get_ident() != own:
            return
        if restless_parts(module):
            module.training = False
            if not any(module is known for known in found):
                found.append(module)

    if not enabled:
        yield found
        return
    handle = register_module_forward_pre_hook(switch)
    try:
        with warnings.catch_warnings():
            # A compiled module is then seen twice, and asked for its thread in between,
            # of which torch's compiler warns. Neither matters here.
            warnings.filterwarnings("ignore", ".*there are global hooks on modules")
            warnings.filterwarnings("ignore", "(?s).*get_ident")
            yield found
    finally:
        handle.remove()
        for module in found:
            module.training = True


@contextmanager
def without_training(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put these modules, not their parts, into evaluation mode; then they train again.

    Example:
        >>> dropout = nn.Dropout(0.5)
        >>> with without_training([dropout]):
        ...     dropout.training
        False
        >>> dropout.training
        True
    """
    switched = list(modules)
    try:
        for module in switched:
            module.training = False
        yield
    finally:
        for module in switched:
            module.training = True


def restless_parts(module: nn.Module) -> list[str]:
    """What of a module has two modes, by name: itself, or a hook before it.

    Example:
        >>> restless_parts(nn.Dropout(0.5)), restless_parts(nn.Linear(2, 2))
        (['Dropout'], [])
    """
    parts = module, *module._forward_pre_hooks.values()  # noqa: SLF001 - no other name
    names = [type(part).__name__ for part in parts if _has_two_modes(part)]
    return [name.removeprefix("_") for name in names]


def _has_two_modes(part: object) -> bool:
    """Whether training changes what a module or a hook does; those of torch only."""
    if isinstance(part, _DropoutNd):
        return part.p > 0
    if isinstance(part, nn.RNNBase | nn.MultiheadAttention):
        return part.dropout > 0
    if _has_statistics(part):
        return True
    return isinstance(part, _BatchNorm | nn.RReLU | _SpectralNorm | SpectralNorm)


def _has_statistics(part: object) -> bool:
    """Whether a norm gathers statistics in training and uses them in evaluation."""
    return isinstance(part, _NormBase) and part.track_running_stats
