"""README's picture: both risks of its example, with and without the constraint.

Draw it with ``python examples/picture.py docs/picture/risks.svg``; needs matplotlib.
"""

import sys
from pathlib import Path

import torch
from torch.nn.functional import softplus

import oneproj

CAP = 0.3
Curves = dict[str, list[tuple[float, float]]]


def main(steps: int = 500) -> tuple[Curves, oneproj.Solution]:
    """Return both risks after every update, on all data, and the solution."""
    new, old = torch.randn(2, 500, 4, generator=torch.Generator().manual_seed(0))
    new_y = torch.sign(new[:, 0] + new[:, 1])
    old_y = torch.sign(old[:, 0] - 0.5 * old[:, 1])
    w = torch.zeros(5, requires_grad=True)
    curves: Curves = {}

    def losses(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return softplus(-batch[1] * (batch[0] @ w[:4] + w[4]))

    def train(name: str, bound: float) -> oneproj.Solution:
        w.data.zero_()
        seen = curves[name] = []

        def record(_: object = None) -> None:
            risks = losses((new, new_y)).mean(), losses((old, old_y)).mean()
            seen.append((risks[0].item(), risks[1].item()))

        risk = oneproj.mean(losses, data=(old, old_y))
        goal = oneproj.mean(losses, data=(new, new_y))
        problem = oneproj.Problem(w, goal, {"old risk": risk <= bound}, radius=20.0)
        solution = oneproj.solve(problem, steps=steps, callbacks=record, progress=False)
        record()
        return solution

    train("without the constraint", bound=100.0)
    return curves, train("oneproj, old risk <= 0.3", bound=CAP)


def draw(curves: Curves, file: Path) -> None:
    """Draw the risk on the new task and, beside it, the risk on the old one."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "oneproj"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for (name, seen), color in zip(curves.items(), ("#8a8a8a", "#35618f"), strict=True):
        for panel, risks in zip(axes, zip(*seen, strict=True), strict=True):
            panel.plot(risks, color=color, label=name)
    axes[1].axhline(CAP, color="#b3402f", ls="--", lw=1, label="cap")
    axes[1].plot(
        len(seen) - 1, seen[-1][1], "o", color="#b3402f", label="answer: feasible"
    )
    axes[0].set(title="risk on the new task (minimised)", xlabel="update")
    axes[1].set(title="risk on the old task (constrained)", xlabel="update")
    axes[1].legend(fontsize=8)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    measured, solution = main()
    print(solution)
    draw(measured, Path(sys.argv[1]))
