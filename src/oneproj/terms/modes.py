"""Modules with two modes: put into evaluation mode, or caught training.

In training mode dropout is random, batch norm depends on the rest of the batch and
spectral norm changes with every call, so a constraint that they take part in has no one
value there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_hook
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
    norms = [m for m in modules if m.training and _has_statistics(m)]
    try:
        for norm in norms:
            norm.training = False
        yield
    finally:
        for norm in norms:
            norm.training = True


@contextmanager
def watching_modes(*, enabled: bool = True) -> Iterator[set[str]]:
    """See which kinds of module run in training mode though they have another one.

    Yields their class names, which the block fills; none where it is not enabled.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        >>> with watching_modes() as training:
        ...     _ = model(torch.ones(1, 2))
        >>> training
        {'Dropout'}
    """
    seen: set[str] = set()

    def note(module: nn.Module, given: tuple[Tensor, ...], made: object) -> None:
        del given, made
        if module.training:
            parts = module, *module._forward_pre_hooks.values()  # noqa: SLF001 - no other name
            names = [type(part).__name__ for part in parts if _has_two_modes(part)]
            seen.update(name.removeprefix("_") for name in names)

    if not enabled:
        yield seen
        return
    handle = register_module_forward_hook(note)
    try:
        with warnings.catch_warnings():
            # A compiled module is then seen twice, which does not matter here.
            warnings.filterwarnings("ignore", ".*there are global hooks on modules")
            yield seen
    finally:
        handle.remove()


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
