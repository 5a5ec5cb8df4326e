"""Tests of terms on a few examples, before a run relies on them.

They find values of the wrong shape, terms that the parameters do not reach, noise, and
gradients that would be wrong: of tensors that were computed before the call, of
reentrant checkpoints, and after hooks that clip or scale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node

from oneproj.distributed import Fact, digest
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.problem.autograd import fresh_casts, refuse_parametrisation_cache
from oneproj.problem.data import changes
from oneproj.problem.modes import (
    evaluating,
    evaluating_when_called,
    kind_with_two_modes,
)
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.vectors.arithmetic import Vector, norm, rounding_unit

LEAF = "AccumulateGrad"
"""The node of a tensor that was not computed, which it has as ``variable``."""
REENTRANT = "CheckpointFunctionBackward"
"""The node of a ``torch.utils.checkpoint`` whose inner parameters autograd misses."""
VIEW = re.compile(
    r"(Alias|AsStrided|Diagonal|Expand|Permute|ReshapeAlias|Select|Slice|Squeeze|T|"
    r"Transpose|Unfold|Unsqueeze|View|ViewAsComplex|ViewAsReal)Backward\d+"
)
"""Nodes of results without memory of their own: they move with the parameters. Those of
split, chunk and unbind do too, but torch forbids their use after an in-place change."""
HOOK_ROUNDING = 1e-2
"""Relative change that a hook may make, by rounding to bfloat16 for example."""
PROBE_SIZE = 3
"""Examples on which each term is tested; the second time the last one is another."""
VALUE_POWER = 0.75
"""Values on all data agree if they differ by eps^0.75 of their size: another number of
threads, or another processor, changes less."""
SEED = 0
"""Of torch's global generators while ranks are compared; their states are restored."""


class Probe(NamedTuple):
    """What testing terms has shown."""

    random: list[str]
    """The names of constraints that seem random; a warning was given."""
    kinds: str
    """The kinds of modules found in training mode, in words; "" for none. They were
    tested in evaluation mode."""


@torch.enable_grad()
def check_connected(terms: Iterable[AbstractTerm], parameters: Vector) -> Probe:
    """Test terms on a few examples: right shape, finite, reached by parameters.

    Raises:
        InvalidProblemError: The shape is wrong, no gradient reaches a parameter, a
            term writes to one, part of it was computed before, or a hook changes
            gradients.
        NonFiniteError: A value is NaN or inf.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_connected([function(lambda: w.norm())], [w])
        Probe(random=[], kinds='')
    """
    terms = list(terms)
    # A model that was passed is in evaluation mode; a hook would compile it again.
    given = all(holds(term.model, parameters) for term in terms)
    refuse_parametrisation_cache()
    with evaluating_when_called(enabled=not given) as training:
        random = [term.name for term in terms if _is_random(term, parameters)]
    check_hooks(parameters)
    kinds = {kind_with_two_modes(module) for module in training}
    return Probe(random, " and ".join(sorted(kinds)))


def _is_random(term: AbstractTerm, parameters: Vector) -> bool:
    """Test one term, by calling it twice; whether it seems random."""
    probe, before = _examples(term), changes(list(parameters))
    with evaluating(term.model):
        values = _values(term, probe)
    if changes(list(parameters)) != before:
        message = (
            f"Evaluating {term.name!r} changes the parameters, as an Embedding with "
            "max_norm does: its value, and how far they have moved, mean nothing then. "
            "State that as a constraint (oneproj.function of the largest norm) or as a "
            "parametrisation (torch.nn.utils.parametrize)."
        )
        raise InvalidProblemError(message)
    graph = nodes(values)
    check_complete(term.name, graph)
    other, same = probe, len(values)
    if probe is not None and term.size is not None and term.size > PROBE_SIZE:
        same = PROBE_SIZE - 1
        other = torch.where(probe < same, probe, PROBE_SIZE)
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices), evaluating(term.model):
        again = _values(term, other)
        _check_fresh(term.name, graph, nodes(again), parameters)
        random = isinstance(term, Constraint) and _warn_if_different(
            term, values[:same], again[:same], probe, parameters
        )
    value = values.mean()
    if not bool(torch.isfinite(value)):
        quantity = f"the value of {term.name!r} at the start"
        raise NonFiniteError(quantity)
    if not _reaches(value, parameters):
        message = (
            f"{term.name!r} does not depend on the parameters of this problem: no "
            "gradient reaches them. Use the same tensors that were passed as "
            "parameters, without .detach(), .item() or torch.no_grad(). A comparison "
            "(an accuracy, score > 0) has no gradient: use a rate of oneproj.rates. A "
            "model that merges factors into its weights to evaluate (LoRA) must not."
        )
        raise InvalidProblemError(message)
    return random


@torch.enable_grad()
def check_still_connected(terms: Iterable[AbstractTerm], parameters: Vector) -> None:
    """Test terms that were connected before: a model may have other tensors now.

    The states of torch's global generators are restored.

    Raises:
        InvalidProblemError: No gradient of a term reaches a parameter any more.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_still_connected([function(lambda: w.norm())], [w])
    """
    for term in terms:
        devices = range(torch.cuda.device_count())
        with torch.random.fork_rng(devices), evaluating(term.model):
            value = term.batch_value(_examples(term))
        if not _reaches(value, parameters):
            message = (
                f"{term.name!r} does not depend on the parameters of this problem any "
                "more: its function uses other tensors by now, as after "
                "load_state_dict(..., assign=True), a replaced layer or a deep copy. "
                "Build the Problem after that, from model.parameters()."
            )
            raise InvalidProblemError(message)


def _examples(term: AbstractTerm) -> Tensor | None:
    """Indices of the examples on which a term is tested."""
    if term.size is None:
        return None
    return torch.arange(min(PROBE_SIZE, term.size), device="cpu")


def _values(term: AbstractTerm, examples: Tensor | None) -> Tensor:
    """One value per example, or the value of a term without data."""
    torch.clear_autocast_cache()  # it would share casts between two calls
    if examples is None:
        return term.batch_value(None).reshape(1)
    return term.examples(examples)


def _reaches(value: Tensor, parameters: Vector) -> bool:
    """Whether one of the parameters gets a gradient of the value, be it zero."""
    if not value.requires_grad:
        return False
    found = torch.autograd.grad(value, list(parameters), allow_unused=True)
    return any(part is not None for part in found)


def holds(model: torch.nn.Module | None, parameters: Vector) -> bool:
    """Whether all parameters are the model's; then it is the one that terms call."""
    own = set() if model is None else {id(p) for p in model.parameters()}
    return all(id(p) in own for p in parameters)


def _warn_if_different(
    term: Constraint,
    first: Tensor,
    beside: Tensor,
    probe: Tensor | None,
    parameters: Vector,
) -> bool:
    """Warn if a constraint's values depend on chance or on their batch.

    Args:
        term: The constraint.
        first: Values of some examples.
        beside: Their values next to another example.
        probe: The examples of the first call, which a third call repeats if need be.
        parameters: Of the problem.

    Returns:
        Whether it seems random.
    """
    first, beside = first.detach(), beside.detach()
    once, size = first.mean().item(), float(first.abs().mean())
    eps = rounding_unit([first, *parameters])
    if torch.is_autocast_enabled(first.device.type):
        eps = max(eps, torch.finfo(torch.get_autocast_dtype(first.device.type)).eps)

    def agree(other: Tensor) -> bool:
        # Values that nearly cancel are rounded by their own size, not by their mean's.
        change = float((first.mean() - other.mean()).abs())
        return not change > math.sqrt(eps) * (size + abs(term.bound))

    if agree(beside):
        return False
    same = _values(term, probe).detach()[: len(first)]
    if agree(same):
        message = (
            f"In the constraint {term.name!r} the value of an example depends on the "
            f"rest of its batch: on the same examples the residual was {once:.6g}, and "
            f"beside another {beside.mean().item():.6g}. What is found feasible need "
            "not be so for other batches. Take statistics and negatives from fixed "
            "data, mask padding, or write an oneproj.function of all data."
        )
        warn(message)
        return False
    message = (
        f"The constraint {term.name!r} is random: on the same examples its residual "
        f"was {once:.6g}, then {same.mean().item():.6g}. What is found feasible need "
        "not be so for the next values. Average it over fixed draws of the noise, or "
        "pass oneproj.Problem(..., model=model)."
    )
    warn(message)
    return True


def nodes(value: Tensor) -> set[Node]:
    """Every operation that a value was computed by, back to the leaves.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> sorted(type(node).__name__ for node in nodes(w.sum()))
        ['AccumulateGrad', 'SumBackward0']
    """
    return _ancestors([] if value.grad_fn is None else [value.grad_fn])


def _ancestors(given: Iterable[Node]) -> set[Node]:
    """Nodes, and all that their results were computed by."""
    found: set[Node] = set()
    waiting = list(given)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [inner for inner, _ in node.next_functions if inner is not None]
    return found


def check_complete(name: str, graph: set[Node]) -> None:
    """Refuse a graph in which gradients of parameters would be missing.

    Raises:
        InvalidProblemError: A part of it is recomputed by a backward pass of its own.

    Example:
        >>> import torch
        >>> check_complete("risk", nodes(torch.ones(2, requires_grad=True).sum()))
    """
    if all(type(node).__name__ != REENTRANT for node in graph):
        return
    message = (
        f"{name!r} goes through torch.utils.checkpoint with use_reentrant=True, which "
        "hides the parameters in it: their gradients would seem to be zero. Pass "
        "use_reentrant=False (of transformers: gradient_checkpointing_enable)."
    )
    raise InvalidProblemError(message)


def _check_fresh(
    name: str, once: set[Node], twice: set[Node], parameters: Vector
) -> None:
    """Refuse a term two of whose calls share a result that depends on a parameter."""
    kinds = {node: type(node).__name__ for node in once}
    shared = [node for node in once & twice if not VIEW.fullmatch(kinds[node])]
    computed = _ancestors(node for node in shared if kinds[node] != LEAF)
    leaves = [
        getattr(node, "variable", None) for node in computed if kinds[node] == LEAF
    ]
    if {id(leaf) for leaf in leaves}.isdisjoint(id(p) for p in parameters):
        return
    message = (
        f"The function of {name!r} uses a tensor that was computed from the parameters "
        "before it was called, and keeps the value that it had then, however they "
        "move. Compute it inside: lambda: (b @ a).norm(), not product = b @ a before. "
        "The weight of a layer under torch.nn.utils.prune, or its older weight_norm "
        "and spectral_norm, is such a tensor too: use torch.nn.utils.parametrizations."
    )
    raise InvalidProblemError(message)


def check_hooks(parameters: Vector) -> None:
    """Refuse hooks (``Tensor.register_hook``) that change gradients but by a mask.

    With a mask, the gradient of the other entries is right. After any other change it
    is the gradient of nothing, and cuts and certificates would be wrong.

    Args:
        parameters: Whose hooks are called, with a gradient large enough to be clipped.

    Raises:
        InvalidProblemError: A hook changes an entry to something other than zero.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> _ = w.register_hook(lambda slope: slope * torch.tensor([1.0, 0.0]))
        >>> check_hooks([w])
        >>> _ = w.register_hook(lambda slope: slope.clamp(-1.0, 1.0))
        >>> check_hooks([w])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: A hook on a parameter of shape (2,) chan...
    """
    for p in parameters:
        large, n = torch.finfo(p.dtype).max ** 0.25, p.numel()
        wide = torch.linspace(-2 * large, large, n, dtype=torch.float64, device="cpu")
        slope = wide.to(p).reshape(p.shape)
        # The gradient of <slope, p> is the slope, unless a hook changes it.
        (made,) = torch.autograd.grad(p, p, slope.clone())
        same = torch.isclose(made, slope, rtol=HOOK_ROUNDING, equal_nan=True)
        if not bool((same | (made == 0)).all()):
            message = (
                f"A hook on a parameter of shape {tuple(p.shape)} changes its gradient "
                "(register_hook) other than by a mask that sets entries to zero: what "
                "is then said to be nearest or stationary need not be. Remove it with "
                "handle.remove(), and clip where you step: solve(..., clip=1.0)."
            )
            raise InvalidProblemError(message)


def common_facts(parameters: Vector, terms: Iterable[AbstractTerm]) -> dict[str, Fact]:
    """What all ranks of a process group must agree on: parameters, and every term.

    A value alone does not tell data apart: where all weights are zero, a logistic loss
    is log 2 for any data. So the norm of the gradient is compared as well. It costs one
    gradient of every term.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> facts = common_facts([w], [oneproj.function(w.norm).named("size")])
        >>> facts["the value of 'size'"].value
        5.0
    """
    terms = list(terms)
    names = ", ".join(term.name for term in terms)
    facts = {
        "the parameters": Fact(digest(parameters), "parameters"),
        "the order of the terms": Fact(names, "data"),
    }
    devices = range(torch.cuda.device_count())
    with fresh_casts(), torch.random.fork_rng(devices), evaluating_when_called():
        for term in terms:
            torch.default_generator.manual_seed(SEED)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(SEED)
            facts |= _term_facts(term, parameters)
    return facts


def _term_facts(term: AbstractTerm, parameters: Vector) -> dict[str, Fact]:
    value, gradient = term.value_and_gradient(parameters)
    term.check_finite(value, gradient)
    eps, steepness = rounding_unit(parameters), norm(gradient)
    if (computed := term.precision()) is not None:
        eps = max(eps, torch.finfo(computed).eps)
    size = abs(value) + term.scale()
    # A gradient that nearly vanishes is a difference of numbers that do not.
    room = math.sqrt(eps) * (steepness + size)
    examples = "none" if term.size is None else str(term.size)
    return {
        f"the number of examples of {term.name!r}": Fact(examples, "data"),
        f"the value of {term.name!r}": Fact(value, "data", eps**VALUE_POWER * size),
        f"the norm of the gradient of {term.name!r}": Fact(steepness, "data", room),
    }
