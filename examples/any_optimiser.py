"""Make a model feasible after any optimiser: one call of ``oneproj.project``.

A small network learns one task. Its risk on another task must stay below a cap. Two
other libraries train it: torch's Adam, which ignores the cap, and Cooper's primal-dual
method (pip install cooper-optim), which aims at it. Both end infeasible. One projection
each makes the network satisfy the cap, moving it as little as possible.
"""

from __future__ import annotations

import cooper
import torch
from torch import Tensor
from torch.nn import Linear, Sequential, Softplus
from torch.nn.functional import softplus

import oneproj

CAP = 0.30


def make_task(angle: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw two classes in the plane, separated by a line at this angle."""
    x = torch.randn(600, 2, generator=generator)
    score = x[:, 0] * torch.cos(torch.tensor(angle)) + x[:, 1] * torch.sin(
        torch.tensor(angle)
    )
    return x, torch.sign(score + 0.3 * torch.randn(600, generator=generator))


def make_model(generator: torch.Generator) -> Sequential:
    """Make a network whose weights depend on this generator only."""
    model = Sequential(Linear(2, 8), Softplus(), Linear(8, 1))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5, generator=generator)
    return model


def losses(model: Sequential, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the logistic loss of every example."""
    return softplus(-batch[1] * model(batch[0]).squeeze(-1))


def train_with_adam(model: Sequential, target: tuple[Tensor, Tensor]) -> None:
    """Minimise the target risk; ignore the cap."""
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        adam.zero_grad()
        losses(model, target).mean().backward()
        adam.step()


class Capped(cooper.ConstrainedMinimizationProblem):
    """The same problem, stated for Cooper."""

    def __init__(
        self, target: tuple[Tensor, Tensor], source: tuple[Tensor, Tensor]
    ) -> None:
        super().__init__()
        self.target, self.source = target, source
        self.cap = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            multiplier=cooper.multipliers.DenseMultiplier(num_constraints=1),
        )

    def compute_cmp_state(self, model: Sequential) -> cooper.CMPState:
        violation = (losses(model, self.source).mean() - CAP).reshape(1)
        state = cooper.ConstraintState(violation=violation)
        loss = losses(model, self.target).mean()
        return cooper.CMPState(loss=loss, observed_constraints={self.cap: state})


def train_with_cooper(model: Sequential, problem: Capped) -> None:
    """Descend in the weights, ascend in the multiplier."""
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=problem,
        primal_optimizers=torch.optim.Adam(model.parameters(), lr=0.02),
        dual_optimizers=torch.optim.SGD(
            problem.dual_parameters(), lr=0.02, maximize=True
        ),
    )
    for _ in range(300):
        optimizer.roll(compute_cmp_state_kwargs={"model": model})


def main() -> dict[str, oneproj.Projection]:
    """Train twice, project twice, and print the residuals before and after."""
    generator = torch.Generator().manual_seed(0)
    target, source = make_task(0.0, generator), make_task(0.9, generator)
    projections = {}
    for name in ("Adam", "Cooper"):
        model = make_model(generator)
        if name == "Adam":
            train_with_adam(model, target)
        else:
            train_with_cooper(model, Capped(target, source))
        risk = oneproj.mean(lambda batch, m=model: losses(m, batch), data=source)
        done = oneproj.project(model.parameters(), {"source risk": risk <= CAP})
        projections[name] = done
        print(
            f"{name}: residual {done.residuals_before['source risk']:+.2e} before, "
            f"{done.residuals['source risk']:+.2e} after; moved {done.distance:.3f} "
            f"with {done.gradients} full gradients; target risk now "
            f"{losses(model, target).mean().item():.4f}"
        )
    return projections


if __name__ == "__main__":
    main()
