"""README's example: learn a new task without forgetting the old one."""

import torch
from torch.nn.functional import softplus
import oneproj

new, old = torch.randn(2, 500, 4, generator=torch.Generator().manual_seed(0))
new_y = torch.sign(new[:, 0] + new[:, 1])
old_y = torch.sign(old[:, 0] - 0.5 * old[:, 1])
model = torch.nn.Linear(4, 1)


def losses(batch):  # one value per example
    return softplus(-batch[1] * model(batch[0]).squeeze(-1))


old_risk = oneproj.mean(losses, data=(old, old_y))
problem = oneproj.Problem(
    model.parameters(),
    objective=oneproj.mean(losses, data=(new, new_y)),
    constraints={"old risk": old_risk <= 0.3},
    radius=20.0,  # optional, and so is model=model: for dropout or batch norm
)
solution = oneproj.solve(problem, steps=500, seed=0)  # nothing to tune
print(solution)  # a residual is value - bound; solution.to_dict() is for JSON
assert solution.counts.projections == 1
assert losses((old, old_y)).mean() <= 0.3  # the property: feasible, not nearly
