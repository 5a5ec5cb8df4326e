"""Networks with constraints on data: the problems that projections are for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from benchmarks.projection.cases import Case, Instance, leaf, numbers
from oneproj.problem.functions import function, largest, mean
from oneproj.problem.terms import AbstractTerm

SEEDS = 3
GROUP = 40
"""Examples behind each constraint."""
INPUTS = 10
UPDATES, RATE = 60, 0.01
"""Of Adam, for starts that are not random."""
WRONG = {"trained": 4, "adversarial": 1}
"""Every so many labels are wrong in training: in part, or all."""
RATE_CAP, MISSES_CAP = 0.02, 0.1
"""Of smooth rates of false positives, and of misses."""


@dataclass(frozen=True)
class Network:
    """A model, its data in groups, and the loss of each example."""

    model: nn.Module
    losses: Callable[[tuple[Tensor, Tensor]], Tensor]
    groups: list[tuple[Tensor, Tensor]]


class Attention(nn.Module):
    """One block of a transformer that classifies short sequences.

    Example:
        >>> Attention(4)(torch.zeros(2, 3, 4)).shape
        torch.Size([2, 2])
    """

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.query = nn.Linear(width, 3 * width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU())
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of two classes."""
        q, k, v = self.query(x).chunk(3, -1)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(x.shape[-1])).softmax(-1)
        scores: Tensor = self.head(self.norm(x + self.mix(weights @ v)).mean(1))
        return scores


def instances() -> list[Instance]:  # noqa: C901 - a list of what there is
    """Models x starts x caps, and the shapes that constraints take.

    Example:
        >>> len(instances()) >= 60
        True
    """
    made: list[Instance] = []

    def add(family: str, name: str, make: Callable[[int], Case]) -> None:
        made.extend(Instance(family, name, s, partial(make, s)) for s in range(SEEDS))

    for kind in ("mlp", "cnn", "transformer", "pinn"):
        for groups in (1, 5):
            for start in ("random", "trained", "adversarial"):
                for cap in ("mild", "tight"):
                    name = f"{kind} {start}, {groups} constraints"
                    made_by = partial(risks, kind, start, cap, groups, torch.float64)
                    add(f"networks {cap}", name, made_by)
    for cap in ("mild", "tight"):
        name = "mlp trained, 20 constraints"
        add(
            f"networks {cap}",
            name,
            partial(risks, "mlp", "trained", cap, 20, torch.float64),
        )
    for kind in ("mlp", "cnn"):
        near = partial(risks, kind, "trained", "near", 1, torch.float64)
        add("networks near", f"{kind} 1 constraint", near)
    for dtype in (torch.float32, torch.bfloat16):
        short = str(dtype).removeprefix("torch.")
        for kind in ("mlp", "transformer"):
            for cap in ("mild", "tight"):
                made_by = partial(risks, kind, "trained", cap, 2, dtype)
                add("narrow dtypes", f"{kind} {cap} {short}", made_by)
        add("narrow dtypes", f"plateau {short}", partial(plateau, dtype))
    for shape in ("max", "top-k", "sigmoid rate"):
        for kind in ("linear", "mlp"):
            add(
                "shapes over examples", f"{shape}, {kind}", partial(shaped, shape, kind)
            )
    return made


def _network(kind: str, seed: int, groups: int) -> Network:
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        model = _model(kind).double()
    finally:
        torch.random.set_rng_state(torch_state)
    data = []
    for j in range(groups):
        at = 1000 * seed + 10 * j
        if kind == "pinn":
            data.append(
                (numbers(at, GROUP, 1).abs().clamp(max=2.0), numbers(at, GROUP))
            )
            continue
        x = numbers(at, GROUP, *_shape(kind))
        flat = x.flatten(1)
        y = (flat[:, : INPUTS // 2].sum(1) + 0.5 * j * flat[:, -1] > 0).long()
        data.append((x, y))
    if kind == "pinn":
        return Network(model, lambda batch: _residuals(model, batch), data)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1], reduction="none")

    return Network(model, losses, data)


def _shape(kind: str) -> tuple[int, ...]:
    shapes = {"cnn": (1, 8, 8), "transformer": (6, 8)}
    return shapes.get(kind, (INPUTS,))


def _model(kind: str) -> nn.Module:
    if kind == "linear":
        return nn.Linear(INPUTS, 2)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(INPUTS, 24), nn.ReLU(), nn.Linear(24, 2))
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 6, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(54, 2),
        )
    if kind == "transformer":
        return Attention(8)
    return nn.Sequential(
        nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)
    )


def _residuals(
    model: nn.Module, batch: tuple[Tensor, Tensor], first: float = 0.0
) -> Tensor:
    """Squared residuals of ``u' = cos t - u`` with ``u(0) = first``, at times t."""
    t = batch[0].detach().requires_grad_()
    with torch.enable_grad():
        u = model(t)
        slope = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    start = model(torch.zeros_like(t))
    squares: Tensor = (slope + u - t.cos()) ** 2 + (start - first) ** 2
    return squares.squeeze(1)


def _train(network: Network, start: str) -> None:
    """Some steps towards wrong labels, or another solution of the equation."""
    pinn = network.groups[0][0].shape[1:] == (1,)
    rate = torch.optim.Adam(network.model.parameters(), lr=RATE)
    for _ in range(UPDATES):
        rate.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for x, y in network.groups:
            if pinn and start == "adversarial":
                total = total + _residuals(network.model, (x, y), first=3.0).mean()
                continue
            wrong = y.clone()
            if not pinn:
                wrong[:: WRONG[start]] = 1 - wrong[:: WRONG[start]]
            total = total + network.losses((x, wrong)).mean()
        torch.autograd.backward(total)
        rate.step()
    rate.zero_grad(set_to_none=True)


def risks(  # noqa: PLR0917 - partial fills them in
    kind: str, start: str, cap: str, groups: int, dtype: torch.dtype, seed: int
) -> Case:
    """The risk on every group of data, at most a share of what it is at the start.

    Example:
        >>> case = risks("mlp", "random", "mild", 2, torch.float64, 0)
        >>> list(case.constraints)
        ['group 0', 'group 1']
    """
    network = _network(kind, seed, groups)
    if start != "random":
        _train(network, start)
    share = {"near": 0.98, "mild": 0.8, "tight": 0.25}[cap]
    with torch.no_grad():
        values = [float(network.losses(group).mean()) for group in network.groups]
    network.model.to(dtype)
    constraints: dict[str, AbstractTerm] = {}
    for j, (x, y) in enumerate(network.groups):
        data = (x.to(dtype), y.to(dtype) if y.is_floating_point() else y)
        constraints[f"group {j}"] = mean(network.losses, data=data) <= share * values[j]
    return Case(list(network.model.parameters()), constraints)


def shaped(shape: str, kind: str, seed: int) -> Case:
    """A maximum, a mean over the worst, or a smooth rate, over all examples.

    Example:
        >>> list(shaped("max", "linear", 0).constraints)
        ['max']
    """
    network = _network(kind, seed, 1)
    batch = network.groups[0]
    _train(network, "trained")
    parameters = list(network.model.parameters())
    if shape == "sigmoid rate":
        x, y = batch

        def rate() -> Tensor:
            score = network.model(x)[:, 1] - network.model(x)[:, 0]
            smooth: Tensor = (10.0 * score[y == 0]).sigmoid()
            return smooth.mean()

        return Case(parameters, {shape: function(rate) <= RATE_CAP})

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        score = network.model(batch[0])
        margin = (score[:, 1] - score[:, 0]) * (2.0 * batch[1] - 1.0)
        return softplus(-margin)

    term = largest(
        losses,
        data=batch,
        count=1 if shape == "max" else GROUP // 10,
        curvature="convex" if kind == "linear" else None,
    )
    return Case(parameters, {shape: term <= 0.6 * term.value()})


def plateau(dtype: torch.dtype, seed: int) -> Case:
    """A smooth rate of misses that is 1 to the last bit of float32 at the start.

    Scores are far below the threshold, so gradients are 0 or nearly so; raising the
    last weight, a bias, by 9 is the way out.

    Example:
        >>> plateau(torch.float32, 0).constraints["misses"].value()
        0.9
    """
    x = torch.cat([numbers(seed, GROUP, 3, scale=0.3), torch.ones(GROUP, 1)], 1)
    start = torch.tensor([0.0, 0.0, 0.0, -8.0], dtype=torch.float64)
    w = leaf(start + numbers(seed + 1, 4, scale=0.1), dtype)
    inputs = x.to(dtype)
    rate = function(lambda: (-4.0 * (inputs @ w)).sigmoid().mean())
    return Case([w], {"misses": rate <= MISSES_CAP})
