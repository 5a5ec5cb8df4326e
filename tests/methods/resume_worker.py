"""Runs part of a fixed job in a process of its own; called by test_resume.py.

Usage: resume_worker.py FIRST LAST LOAD_FROM SAVE_TO ("-" for none).
"""

from __future__ import annotations

import sys

import torch
from torch.optim import SGD

from oneproj import Hinge, OneProjection

STEPS_PER_OUTER, OUTER_STEPS = 20, 15


def main(first: int, last: int, load_from: str, save_to: str) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 4), torch.nn.Softplus(), torch.nn.Linear(4, 1)
    )
    fill = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=fill))
    x, y = torch.randn(64, 5, generator=fill), torch.randn(64, 1, generator=fill)
    sampling = torch.Generator().manual_seed(4)
    optimizer = OneProjection(
        model.parameters(),
        0.05,
        prox_weight=0.2,
        inner_steps=STEPS_PER_OUTER,
        radius=2.0,
        base=lambda groups: SGD(groups, momentum=0.9),
        select="random",
        outer_steps=OUTER_STEPS,
        generator=torch.Generator().manual_seed(5),
    )
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 300)
    if load_from != "-":
        saved = torch.load(load_from, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        sampling.set_state(saved["sampling"])
    penalty = Hinge(3.0)
    for _ in range(first, last):
        rows = torch.randint(64, (8,), generator=sampling)
        optimizer.zero_grad()
        loss = (model(x[rows]) - y[rows]).square().mean()
        size = sum(p.square().sum() for p in model.parameters())
        (loss + penalty(size - 0.5)).backward()
        optimizer.step()
        scheduler.step()
    if last == STEPS_PER_OUTER * OUTER_STEPS:
        optimizer.eval()
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "sampling": sampling.get_state(),
        },
        save_to,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
