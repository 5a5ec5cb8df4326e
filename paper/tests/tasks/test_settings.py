"""The settings against the tables of the paper, typed in a second time."""

from __future__ import annotations

import pytest

from oneproj_paper.tasks.settings import PAPER

# name: updates and learning rates of both methods, batch size, hidden layers, radius
RUNS = {
    "transfer-gaussian": ((3000, 0.5), (500, 1.0), 32, ()),
    "transfer-climsim": ((1000, 0.05), (100, 0.3), 40, (8,)),
    "abstention-gaussian": ((500, 0.05), (500, 0.05), 64, ()),
    "abstention-climsim": ((500, 0.05), (500, 0.05), 64, (32, 16)),
    "abstention-nasa": ((500, 0.05), (500, 0.03), 64, (8,)),
    "abstention-credit": ((500, 0.10), (500, 0.03), 64, (16, 8)),
}
# name: thresholds of both methods, nominal error, radius
CALIBRATION = {
    "abstention-gaussian": ((0.300, 0.300), (0.300, 0.300), 0.15, 2.0),
    "abstention-climsim": ((0.180, 0.290), (0.140, 0.225), 0.05, 10.0),
    "abstention-nasa": ((0.260, 0.210), (0.260, 0.280), 0.10, 10.0),
    "abstention-credit": ((0.425, 0.400), (0.425, 0.400), 0.20, 10.0),
}


def test_there_are_six() -> None:
    assert set(PAPER) == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_those_of_the_paper(name: str) -> None:
    settings = PAPER[name]
    one, projected = (settings.methods[m] for m in ("one-projection", "projected-sgd"))
    assert RUNS[name] == (
        (one.updates, one.lr),
        (projected.updates, projected.lr),
        settings.batch_size,
        settings.hidden,
    )
    assert settings.task == name.split("-", maxsplit=1)[0]
    assert settings.activation == ("relu" if name.endswith("credit") else "softplus")
    # ell = 0.1 in f + ell |x - x_t|^2, so beta = 0.2 in f + beta/2 |x - x_t|^2.
    assert (settings.prox_weight, settings.inner_steps, settings.strength) == (
        0.2,
        25,
        5,
    )
    assert one.updates % settings.inner_steps == 0


@pytest.mark.parametrize("name", CALIBRATION)
def test_calibration_is_that_of_the_paper(name: str) -> None:
    settings = PAPER[name]
    assert CALIBRATION[name] == (
        settings.methods["one-projection"].thresholds,
        settings.methods["projected-sgd"].thresholds,
        settings.target_error,
        settings.radius,
    )
    assert settings.source_fit is None


@pytest.mark.parametrize(
    ("name", "updates", "lr"),
    [("transfer-gaussian", 1000, 0.05), ("transfer-climsim", 200, 0.003)],
)
def test_source_fits_are_those_of_the_paper(name: str, updates: int, lr: float) -> None:
    fit = PAPER[name].source_fit
    assert fit is not None
    assert (fit.updates, fit.lr) == (updates, lr)
    assert PAPER[name].target_error is None
