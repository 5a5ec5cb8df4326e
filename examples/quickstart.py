"""From start to certificate: a robust linear classifier with one projection.

A linear score whose weight has norm at most 1 cannot change by more than the change
of its input. Plain training ignores that. Here the cap is a hard constraint: the
iterates may break it, the answer may not.
"""

from __future__ import annotations

import sys

import torch

import oneproj


def main() -> oneproj.Solution:
    """Build the problem, solve it, print the table, return the solution."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 5, generator=generator)
    steep = torch.tensor([4.0, -3.0, 2.0, 0.0, 0.0])  # the truth is far from the cap
    y = torch.sign(x @ steep + torch.randn(2000, generator=generator))

    model = torch.nn.Linear(5, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)

    def logistic_loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        features, labels = batch
        return torch.nn.functional.softplus(-labels * model(features).squeeze(-1))

    problem = oneproj.Problem(
        model.parameters(),
        objective=oneproj.mean(logistic_loss, data=(x, y)),
        constraints={"weight norm": oneproj.sets.Ball(1.0).on(model.weight)},
        radius=10.0,
    )
    solution = oneproj.solve(problem, steps=1000, lr=0.05, strength=0.25, seed=0)
    accuracy = ((model(x).squeeze(-1) * y) > 0).double().mean().item()
    sys.stdout.write(f"{solution}\n\nweight norm: {model.weight.norm():.6f} (cap 1)\n")
    sys.stdout.write(f"training accuracy: {accuracy:.3f}\n")
    return solution


if __name__ == "__main__":
    main()
