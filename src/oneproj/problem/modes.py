"""Modules that behave differently in training and in evaluation mode.

In training mode dropout is random, batch norm depends on the rest of the batch and
spectral norm changes with every call, so a constraint that uses them has no single
value there.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)


@contextmanager
def evaluating(model: nn.Module | None) -> Iterator[None]:
    """Put a model into evaluation mode while the block runs; None for no model.

    Every module then gets its own mode back, also after an error.

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
def frozen_statistics(model: nn.Module | None) -> Iterator[None]:
    """Make norms use their running statistics, unchanged, while the block runs.

    The rest of the model keeps its mode, and the norms get theirs back. ``solve`` does
    so in the second half of a run. In a loop of your own, put it around the forward
    pass and the penalty there: what training sees is then what is judged in evaluation
    mode, and the projection has little left to do.

    Args:
        model: With batch norm, or another norm that has running statistics.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
        >>> with frozen_statistics(model):
        ...     model[0].training, model[1].training
        (False, True)
        >>> model[0].training
        True
    """
    modules = [] if model is None else list(model.modules())
    norms = [m for m in modules if m.training and has_statistics(m)]
    try:
        for norm in norms:
            norm.training = False
        yield
    finally:
        for norm in norms:
            norm.training = True


@contextmanager
def evaluating_when_called(*, enabled: bool = True) -> Iterator[list[nn.Module]]:
    """Put modules that have two modes into evaluation mode when they are called.

    A module is switched before it runs, so no norm updates its statistics, and only if
    this thread calls it: other threads may train theirs meanwhile. At the end of the
    block the modules are back in training mode.

    Yields:
        The modules that were switched, filled while the block runs; none if not
        ``enabled``.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> with evaluating_when_called() as found:
        ...     _ = model(torch.ones(1, 2))
        >>> found, model[1].training, model[1].running_mean.tolist()
        ([BatchNorm1d(2, eps=1e-05, ...)], True, [0.0, 0.0])
    """
    found: list[nn.Module] = []

    def switch(module: nn.Module) -> None:
        if module.training and kind_with_two_modes(module):
            module.training = False
            found.append(module)

    with before_calls(switch) if enabled else nullcontext():
        try:
            yield found
        finally:
            for module in found:
                module.training = True


@contextmanager
def before_calls(hook: Callable[[nn.Module], None]) -> Iterator[None]:
    """Call a hook before every module that this thread calls while the block runs.

    Example:
        >>> import torch
        >>> called = []
        >>> with before_calls(called.append):
        ...     _ = nn.ReLU()(torch.ones(1))
        >>> called
        [ReLU()]
    """
    own = threading.get_ident()

    def call(module: nn.Module, given: object) -> None:
        del given
        if threading.get_ident() == own:
            hook(module)

    handle = register_module_forward_pre_hook(call)
    try:
        with warnings.catch_warnings():
            # torch's compiler warns that it compiles a module again because of the
            # hook, and that the hook asks for its thread. Neither matters here.
            warnings.filterwarnings("ignore", ".*there are global hooks on modules")
            warnings.filterwarnings("ignore", "(?s).*get_ident")
            yield
    finally:
        handle.remove()


def kind_with_two_modes(module: nn.Module) -> str:
    """The kind of a module that training mode changes; "" for any other.

    Example:
        >>> kind_with_two_modes(nn.Dropout(0.5)), kind_with_two_modes(nn.Linear(2, 2))
        ('Dropout', '')
    """
    buffers = dict(module.named_buffers(recurse=False))
    if any(name.endswith("_u") and f"{name[:-1]}v" in buffers for name in buffers):
        return "SpectralNorm"  # its two singular vectors, in torch's old and new form
    if isinstance(module, DROPOUTS):
        two_modes = module.p > 0
    elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        two_modes = module.dropout > 0
    else:
        two_modes = has_statistics(module) or isinstance(module, nn.RReLU)
    return type(module).__name__ if two_modes else ""


def has_statistics(module: nn.Module) -> bool:
    """Whether a norm collects statistics in training, to use them in evaluation.

    Example:
        >>> has_statistics(nn.BatchNorm1d(2)), has_statistics(nn.LayerNorm(2))
        (True, False)
    """
    return getattr(module, "track_running_stats", False) is True
