"""Constraints in a fit of Lightning: loss, validation, checkpoints, resume, answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj

L = pytest.importorskip("lightning", reason="the extra `lightning` is not installed")
callbacks = pytest.importorskip("lightning.pytorch.callbacks")
loggers = pytest.importorskip("lightning.pytorch.loggers")
integration = pytest.importorskip("oneproj.integrations.lightning")

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)`"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
]
EPOCHS = 6
OPTIMIZERS = {
    "one projection": partial(oneproj.OneProjection, lr=0.1),
    "Adam": partial(torch.optim.Adam, lr=0.1),
}


class Classifier(L.LightningModule):  # type: ignore[misc,name-defined]
    """As a user would write it."""

    def __init__(self, task: Any, make: Any = OPTIMIZERS["one projection"]) -> None:  # noqa: ANN401
        super().__init__()
        self.task, self.make, self.model = task, make, task.model()
        caps = task.caps(self.model)
        objective = oneproj.mean(lambda b: task.losses(self.model, b), data=task.new)
        self.constraints = integration.ConstraintCallback(
            caps, objective=objective, seed=3, progress=False
        )
        self.validated: list[Tensor] = []

    def configure_callbacks(self) -> list[Any]:
        return [self.constraints]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = self.make(self.parameters())
        return optimizer

    def training_step(self, batch: tuple[Tensor, ...], _: int) -> Tensor:
        loss: Tensor = self.task.losses(self.model, batch).mean()
        return loss + self.constraints.penalty()

    def validation_step(self, _: tuple[Tensor, ...], index: int) -> None:
        if index == 0:
            self.validated.append(self.model.weight.detach().clone())


def fit(module: Any, folder: Path, *more: Any, **options: Any) -> Any:  # noqa: ANN401
    settings: dict[str, Any] = {"max_epochs": EPOCHS, "logger": False} | options
    checkpoint = settings.pop("ckpt_path", None)
    keep = callbacks.ModelCheckpoint(folder / "kept", "{epoch}", save_top_k=-1)
    trainer = L.Trainer(
        accelerator="cpu",
        callbacks=[keep, *more],
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        accumulate_grad_batches=2,
        **settings,
    )
    loader = module.task.loader()
    trainer.fit(module, loader, loader, ckpt_path=checkpoint)
    return trainer


def answer(module: Any) -> dict[str, Tensor]:  # noqa: ANN401
    return {name: p.detach().clone() for name, p in module.model.named_parameters()}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_it_trains_validates_saves_resumes_and_ends_feasible(
    task: Any,  # noqa: ANN401
    tmp_path: Path,
    make: Any,  # noqa: ANN401
    precision: str,
) -> None:
    whole = Classifier(task, make)
    fit(whole, tmp_path, precision=precision)
    solution = whole.constraints.solution
    assert solution.feasible
    assert solution.counts.projections == 1
    assert task.excess(answer(whole)) <= 0
    assert -0.05 < solution.projection.residuals_before["old risk"] < 0.05
    assert solution.objective <= 1.03 * task.best()

    resumed = Classifier(task, make)
    saved = tmp_path / "kept" / "epoch=2.ckpt"
    fit(resumed, tmp_path / "again", ckpt_path=saved, precision=precision)
    assert len(whole.validated) == EPOCHS + 1  # the first is a check before training
    assert len(resumed.validated) == EPOCHS - 3 + 1
    for name, value in answer(whole).items():
        assert torch.equal(value, answer(resumed)[name])
    assert resumed.constraints.solution.settings == solution.settings
    assert torch.equal(whole.validated[-1], resumed.validated[-1])


class Saves(callbacks.Callback):  # type: ignore[misc,name-defined]
    """Saves in the middle of an epoch, and notes both iterates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inner: Tensor | None = None
        self.outer: Tensor | None = None

    def on_train_batch_end(self, trainer: Any, module: Any, *_: object) -> None:  # noqa: ANN401
        if trainer.global_step != 27 or self.inner is not None:
            return
        (optimizer,) = trainer.optimizers
        self.inner = module.model.weight.detach().clone()
        optimizer.eval()
        self.outer = module.model.weight.detach().clone()
        optimizer.train()
        trainer.save_checkpoint(self.folder / "whole.ckpt")
        trainer.save_checkpoint(self.folder / "weights.ckpt", weights_only=True)
        assert torch.equal(module.model.weight, self.inner)


@pytest.mark.parametrize("name", ["whole", "weights"])
def test_a_checkpoint_has_the_outer_iterate(
    task: Any,  # noqa: ANN401
    tmp_path: Path,
    name: str,
) -> None:
    saves = Saves(tmp_path)
    fit(Classifier(task), tmp_path, saves)
    state = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["state_dict"]
    assert not torch.equal(saves.inner, saves.outer)
    assert torch.equal(state["model.weight"], saves.outer)


def test_validation_sees_what_the_checkpoint_after_it_has(
    task: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    module = Classifier(task)
    fit(module, tmp_path)
    for epoch, weight in enumerate(module.validated[1:]):
        saved = torch.load(tmp_path / "kept" / f"epoch={epoch}.ckpt", weights_only=True)
        assert torch.equal(saved["state_dict"]["model.weight"], weight)


def test_after_the_fit_it_is_the_answer_that_is_saved(
    task: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    module = Classifier(task)
    trainer = fit(module, tmp_path)
    trainer.validate(module, task.loader(), verbose=False)
    trainer.save_checkpoint(tmp_path / "answer.ckpt")
    state = torch.load(tmp_path / "answer.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(state["model.weight"], module.validated[-1])
    assert task.excess({n.removeprefix("model."): v for n, v in state.items()}) <= 0


def test_residuals_and_strengths_are_logged(task: Any, tmp_path: Path) -> None:  # noqa: ANN401
    logger = loggers.CSVLogger(tmp_path / "logs")
    module = Classifier(task)
    fit(module, tmp_path, logger=logger, log_every_n_steps=4)
    header, *rows = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    columns = dict(zip(header.split(","), rows[-1].split(","), strict=True))
    strengths = module.constraints.solution.settings["strengths"]
    assert float(columns["strength/old risk"]) == pytest.approx(strengths["old risk"])
    assert abs(float(columns["residual/old risk"])) < 1.0


def test_mistakes_are_named(task: Any, tmp_path: Path) -> None:  # noqa: ANN401
    module = Classifier(task)
    with pytest.raises(oneproj.InvalidProblemError, match="no fit with this callback"):
        module.constraints.penalty()
    two = Classifier(task, lambda ps: [torch.optim.SGD([p], lr=0.1) for p in ps])
    two.automatic_optimization = False
    trainer = L.Trainer(
        max_epochs=1, logger=False, accelerator="cpu", default_root_dir=tmp_path
    )
    loader = task.loader()
    with pytest.raises(oneproj.InvalidProblemError, match="needs one optimizer"):
        trainer.fit(two, loader, loader)
