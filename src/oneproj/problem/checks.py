"""How a value came about, by the graph that autograd recorded of it.

A function is called anew at every point, and its gradient is asked for by parameter. A
part of the graph that was there before the call keeps the value of another point; one
that is recomputed in the backward pass is not asked at all.

Hooks on the gradients of parameters: which of them leave a gradient what it is.

``Tensor.register_hook`` is how loops clip, scale or mask gradients. A mask keeps some
entries where they are, and what is left is the gradient in the others. Any other change
makes it the gradient of nothing: cuts would cut off feasible points, and certificates
would speak of another slope.

A term is tried on a few examples before a run relies on it.

What all ranks of a process group have to agree on: parameters and terms.

A value alone does not tell data apart: where all weights are zero, a logistic loss is
log 2 for any data. So the length of the gradient is compared as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from oneproj.distributed import Fact, digest
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.problem.autograd import fresh_casts, fresh_parametrisations
from oneproj.problem.modes import evaluating, evaluating_when_called, restless_parts
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.vectors.arithmetic import Vector, norm, rounding_unit

REENTRANT = "CheckpointFunctionBackward"
"""The node of ``torch.utils.checkpoint`` that knows nothing of what it recomputes."""

VIEW = re.compile(
    r"(Alias|AsStrided|Diagonal|Expand|Permute|ReshapeAlias|Select|Slice|Squeeze|T|"
    r"Transpose|Unfold|Unsqueeze|View|ViewAsComplex|ViewAsReal)Backward\d+"
)
"""Nodes of results that have no memory of their own: they move with the parameters.
Those of split, chunk and unbind do so too, but torch forbids their use thereafter."""


def nodes(value: Tensor) -> set[Node]:
    """Every operation that a value was computed by, back to the leaves.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> sorted(type(node).__name__ for node in nodes(w.sum()))
        ['AccumulateGrad', 'SumBackward0']
    """
    return _behind([] if value.grad_fn is None else [value.grad_fn])


def _behind(given: Iterable[Node]) -> set[Node]:
    """Nodes, and all that their results were computed by."""
    found: set[Node] = set()
    ahead = list(given)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += [before for before, _ in node.next_functions if before is not None]
    return found


def rounding(found: Iterable[Node]) -> float:
    """The largest relative rounding error among the dtypes of a graph; 0 without any.

    Inside ``torch.autocast`` it is not that of parameters and value.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> rounding(nodes(w.sum())), rounding(nodes(w.bfloat16().sum().double()))
        (1.1920928955078125e-07, 0.0078125)
    """
    made = (part for node in found for part in node._input_metadata)  # noqa: SLF001 - no other name
    return max((torch.finfo(dtype).eps for dtype in {m.dtype for m in made}), default=0)


def check_complete(name: str, found: set[Node]) -> None:
    """Refuse a graph in which gradients of parameters would be missing.

    Raises:
        InvalidProblemError: A part of it is recomputed by a backward pass of its own.

    Example:
        >>> import torch
        >>> check_complete("risk", nodes(torch.ones(2, requires_grad=True).sum()))
    """
    if all(type(node).__name__ != REENTRANT for node in found):
        return
    message = (
        f"{name!r} goes through torch.utils.checkpoint with use_reentrant=True, which "
        "hides the parameters in it: their gradients would seem to be zero. Pass "
        "use_reentrant=False; for a model of transformers, model."
        'gradient_checkpointing_enable({"use_reentrant": False}).'
    )
    raise InvalidProblemError(message)


def check_fresh(
    name: str, once: set[Node], twice: set[Node], parameters: Sequence[Tensor]
) -> None:
    """Refuse a value that stays what it was, wherever the parameters go.

    Args:
        name: Of the term.
        once: The graph of its value.
        twice: That of its value in another call.
        parameters: That move.

    Raises:
        InvalidProblemError: The graphs share a result that depends on a parameter.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> doubled = 2 * w
        >>> check_fresh("a", nodes(w.sum()), nodes(w.sum()), [w])
        >>> check_fresh("a", nodes(doubled.sum()), nodes(doubled.sum()), [w])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: The function of 'a' uses a tensor that...
    """
    ours = {id(p) for p in parameters}
    kept = [n for n in once & twice if not VIEW.fullmatch(type(n).__name__)]
    computed = _behind(node for node in kept if _leaf(node) is None)
    if all(id(_leaf(node)) not in ours for node in computed):
        return
    message = (
        f"The function of {name!r} uses a tensor that was computed from the parameters "
        "before it was called, and keeps the value that it had then, however they "
        "move; what split, chunk and unbind made cannot even be used once they have. "
        "Compute it inside of the function: lambda: (b @ a).norm(), not product "
        "= b @ a before it. The weight of a layer that torch.nn.utils.prune, or its "
        "older weight_norm or spectral_norm, has changed is such a tensor too: write "
        "layer.weight_orig * layer.weight_mask, or use torch.nn.utils.parametrizations."
    )
    raise InvalidProblemError(message)


def _leaf(node: Node) -> Tensor | None:
    """The tensor whose gradient a node accumulates, if it is such a node."""
    leaf = getattr(node, "variable", None)
    return leaf if isinstance(leaf, Tensor) else None


ROUNDING = 1e-2
"""A hook may round, to bfloat16 for example; what clips or scales changes by more."""


def check_hooks(look: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Refuse hooks that make something else of a gradient than it, or zeros.

    Args:
        look: Computes a value anew.
        parameters: Whose hooks are tried, on a gradient that is long enough to be
            clipped.

    Raises:
        InvalidProblemError: A hook changes an entry to something other than zero.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> _ = w.register_hook(lambda slope: slope * torch.tensor([1.0, 0.0]))
        >>> check_hooks(lambda: w.sum(), [w])
        >>> _ = w.register_hook(lambda slope: slope.clamp(-1.0, 1.0))
        >>> check_hooks(lambda: w.sum(), [w])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: A hook on a parameter of shape (2,) chan...
    """
    hooked = [p for p in parameters if p._backward_hooks]  # noqa: SLF001 - no other name
    if not hooked:
        return
    for p, slope in zip(hooked, _slopes(look, hooked), strict=True):
        made = _after_hooks(p, slope).to_dense()
        same = torch.isclose(made, slope.to_dense(), rtol=ROUNDING, equal_nan=True)
        if not bool((same | (made == 0)).all()):
            message = (
                f"A hook on a parameter of shape {tuple(p.shape)} changes its gradient "
                "(register_hook), by clipping or scaling it for example: what is then "
                "said to be feasible nowhere, nearest or stationary need not be. Only "
                "a mask may be there, which sets entries to zero. Remove the hook with "
                "handle.remove(), and clip where you step: solve(..., clip=1.0), or "
                "torch.nn.utils.clip_grad_norm_ in a loop of your own."
            )
            raise InvalidProblemError(message)


def _slopes(look: Callable[[], Tensor], hooked: Sequence[Tensor]) -> list[Tensor]:
    """A large multiple of the gradient of a value, as it is without the hooks."""
    kept = [p._backward_hooks for p in hooked]  # noqa: SLF001 - as above
    value = look()
    large = torch.full_like(value, torch.finfo(value.dtype).max ** 0.25)
    try:
        for p in hooked:
            p._backward_hooks = None  # noqa: SLF001 - as above
        return list(torch.autograd.grad(value, hooked, large, materialize_grads=True))
    finally:
        for p, hooks in zip(hooked, kept, strict=True):
            p._backward_hooks = hooks  # noqa: SLF001 - as above


@torch.no_grad()
def _after_hooks(p: Tensor, slope: Tensor) -> Tensor:
    """What the hooks make of a gradient, one after the other as torch calls them.

    Two backward passes would not tell: a loss with noise has two gradients.
    """
    made = slope.clone()  # a hook may write into what it is given
    for hook in (p._backward_hooks or {}).values():  # noqa: SLF001 - as above
        replaced = hook(made)
        made = made if replaced is None else replaced
    return made


PROBE_SIZE = 3
"""Examples on which each term is tried; the last is another one the second time."""


class Probe(NamedTuple):
    """What trying terms has shown."""

    random: list[str]
    """The names of constraints that may be, which is warned of."""
    training: list[nn.Module]
    """Modules that were found in training mode; they were tried in the other one."""

    def kinds(self) -> str:
        """The kinds of these modules, in words."""
        names = {name for module in self.training for name in restless_parts(module)}
        return " and ".join(sorted(names))


@torch.enable_grad()
def check_connected(terms: Iterable[AbstractTerm], parameters: Vector) -> Probe:
    """Try terms on a few examples: right shape, finite, reached by parameters.

    Raises:
        InvalidProblemError: The shape is wrong, no gradient reaches a parameter, a
            term writes to one, or part of it was computed before.
        NonFiniteError: A value is NaN or inf.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_connected([function(lambda: w.norm())], [w]).random
        []
    """
    terms = list(terms)
    # A model that is given evaluates; watched, it would be compiled once more.
    given = all(holds(term.model, parameters) for term in terms)
    with evaluating_when_called(enabled=not given) as training:
        random = [term.name for term in terms if _may_be_random(term, parameters)]
    return Probe(random, training)


def _may_be_random(term: AbstractTerm, parameters: Vector) -> bool:
    """Try one term."""
    probe = _examples(term)
    before = _versions(parameters)
    with evaluating(term.model), fresh_parametrisations():
        values = _values(term, probe)
    if _versions(parameters) != before:
        _refuse_to_be_moved(term)
    random = _look_again(term, values, parameters)
    value = values.mean()
    if not bool(torch.isfinite(value)):
        quantity = f"the value of {term.name!r} at the start"
        raise NonFiniteError(quantity)
    if not _reaches(value, parameters):
        message = (
            f"{term.name!r} does not depend on the parameters of this problem: no "
            "gradient reaches them. Check that its function uses the same tensors that "
            "were passed as parameters, without .detach(), .item() or torch.no_grad(). "
            "A comparison (an accuracy, score > 0) has no gradient: use a surrogate, "
            "such as torch.sigmoid(score) or softplus(-score). The tensor of a set "
            "must be one of the parameters, and require a gradient. A model that "
            "merges factors into its weights to evaluate (LoRA) must be told not to."
        )
        raise InvalidProblemError(message)
    drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
    with drawn, evaluating(term.model), fresh_parametrisations():
        check_hooks(lambda: _values(term, probe).mean(), parameters)
    return random


@torch.enable_grad()
def check_still_connected(terms: Iterable[AbstractTerm], parameters: Vector) -> None:
    """Try terms that were connected before: a model may have other tensors by now.

    What they draw from torch's global generators is put back.

    Raises:
        InvalidProblemError: No gradient of a term reaches a parameter any more.

    Example:
        >>> from oneproj import function
        >>> w = torch.ones(1, requires_grad=True)
        >>> check_still_connected([function(lambda: w.norm())], [w])
    """
    for term in terms:
        drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
        with drawn, evaluating(term.model):
            value = term.batch_value(_examples(term))
        if not _reaches(value, parameters):
            message = (
                f"{term.name!r} does not depend on the parameters of this problem any "
                "more: its function uses other tensors by now, and what is found for "
                "these would not be for those. load_state_dict(..., assign=True), a "
                "layer that was replaced and a deep copy do that. Build the Problem "
                "after them, from model.parameters(); to load a state into the same "
                "tensors, leave out assign."
            )
            raise InvalidProblemError(message)


def _examples(term: AbstractTerm) -> Tensor | None:
    """Indices of the examples on which a term is tried."""
    if term.size is None:
        return None
    return torch.arange(min(PROBE_SIZE, term.size), device="cpu")


def _reaches(value: Tensor, parameters: Vector) -> bool:
    """Whether a gradient of the value arrives at one of the parameters, be it zero."""
    if not value.requires_grad:
        return False
    found = torch.autograd.grad(value, list(parameters), allow_unused=True)
    return any(part is not None for part in found)


def holds(model: torch.nn.Module | None, parameters: Vector) -> bool:
    """Whether all of them are the model's: then it is the one that terms call."""
    own = set() if model is None else {id(p) for p in model.parameters()}
    return all(id(p) in own for p in parameters)


def _versions(parameters: Vector) -> list[int]:
    """A number for each that changes when something writes to it."""
    # torch counts them itself: that takes no copy.
    return [0 if p.is_inference() else p._version for p in parameters]  # noqa: SLF001


def _refuse_to_be_moved(term: AbstractTerm) -> None:
    message = (
        f"Evaluating {term.name!r} changes the parameters, as an Embedding with "
        "max_norm does: then neither its value nor how far they have moved means "
        "anything. Make it a function that only reads them, and state what it did as a "
        "constraint (such as an oneproj.function of the largest norm of the rows) or "
        "as a parametrisation (torch.nn.utils.parametrize)."
    )
    raise InvalidProblemError(message)


def _values(term: AbstractTerm, examples: Tensor | None) -> Tensor:
    """One value per example, or that of a term without data."""
    torch.clear_autocast_cache()  # which holds what the call before cast
    if examples is None:
        return term.batch_value(None).reshape(1)
    return term.examples(examples)


def _look_again(term: AbstractTerm, values: Tensor, parameters: Vector) -> bool:
    """Call the term once more, beside another example; whether it seems random."""
    graph, probe = nodes(values), _examples(term)
    check_complete(term.name, graph)
    other, kept = probe, len(values)
    if probe is not None and term.size is not None and term.size > PROBE_SIZE:
        kept = PROBE_SIZE - 1
        other = torch.where(probe < kept, probe, PROBE_SIZE)
    drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
    with drawn, evaluating(term.model), fresh_parametrisations():
        again = _values(term, other)
        check_fresh(term.name, graph, nodes(again), parameters)
        first, then, eps = values[:kept], again[:kept], rounding(graph)
        if not isinstance(term, Constraint) or _agree(term, first, then, eps):
            return False
        same = _values(term, probe)[:kept]
    if _agree(term, first, same, eps):
        _warn_of_company(term, first.mean(), then.mean())
        return False
    _warn_of_noise(term, first.mean(), same.mean())
    return True


def _agree(term: Constraint, a: Tensor, b: Tensor, eps: float) -> bool:
    """Whether the residuals of examples have one mean but for rounding, or none.

    Values that nearly cancel are rounded as large as they are, not as their mean is.
    """
    a, b = a.detach(), b.detach()
    apart, size = float((a.mean() - b.mean()).abs()), float(a.abs().mean())
    return not apart > math.sqrt(eps) * (size + abs(term.bound))


def _warn_of_noise(term: Constraint, first: Tensor, again: Tensor) -> None:
    message = (
        f"The constraint {term.name!r} is random: on the same examples its residual "
        f"was {first.item():.6g}, then {again.item():.6g}. What is found feasible is "
        "so for the values that were seen, and need not be for the next ones. Noise, "
        "dropout and augmentation are for the objective; average a constraint over "
        "fixed draws of them, or pass oneproj.Problem(..., model=model)."
    )
    warn(message)


def _warn_of_company(term: Constraint, once: Tensor, beside: Tensor) -> None:
    message = (
        f"In the constraint {term.name!r} the value of an example depends on the rest "
        f"of its batch: on the same examples the residual was {once.item():.6g}, and "
        f"beside another {beside.item():.6g}. What is found feasible is so for batches "
        "of chunk_size, in the order of the data, and need not be for others. "
        "Statistics or negatives taken from the batch, batch norm without running ones "
        "and padding that is not masked do that: take them from fixed data, or write "
        "the constraint as an oneproj.function of all data."
    )
    warn(message)


VALUE_POWER = 0.75
"""Values on all data agree if they differ by eps^0.75 of their size: another number of
threads, or another processor, changes less."""
SEED = 0
"""Of the noise that a term may draw from torch's global generators meanwhile; their
states are put back."""


def common_facts(parameters: Vector, terms: Iterable[AbstractTerm]) -> dict[str, Fact]:
    """The parameters, and the size, value and gradient of every term on all data.

    It costs one gradient of every term.

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
            facts |= _of_term(term, parameters)
    return facts


def _of_term(term: AbstractTerm, parameters: Vector) -> dict[str, Fact]:
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
