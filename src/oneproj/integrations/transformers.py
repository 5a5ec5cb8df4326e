"""Hard constraints in Hugging Face's ``Trainer``.

``ConstrainedTrainer`` is a ``Trainer`` that is also told the constraints. After the
backward pass of a minibatch it makes that of the penalty, so the loss that it logs is
the user's, and subclasses may compute it as they like. ``Trainer`` itself calls
``train()`` of an optimizer before each training step, and ``eval()`` before an
evaluation. Here it is called before a model is saved, too, and at the end of an epoch.
So the weights of a checkpoint are the outer iterate, and the optimizer's state beside
them has the inner one: a run resumes from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneproj.errors import CheckpointError
from oneproj.integrations.common import as_logs, inside, show_outer
from oneproj.methods.auto_penalty import AutoPenalty
from oneproj.problem.terms import AbstractExpression, AbstractTerm
from oneproj.progress import require
from oneproj.projection.project import OnFailure
from oneproj.results import Solution

require("transformers", "transformers")

from transformers import Trainer, TrainerCallback  # noqa: E402 - required first
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402

PENALTY_FILE = "oneproj_penalty.pt"
"""Of a checkpoint's folder: the state of the penalty."""


class ConstrainedTrainer(Trainer):  # type: ignore[misc]  # Any to mypy, see pyproject
    """A ``Trainer`` under hard constraints, with one projection when training ends.

    In front of another subclass of ``Trainer`` it adds the constraints to that one:
    ``class Constrained(ConstrainedTrainer, SFTTrainer): ...``.

    Args:
        args: As ``Trainer`` takes them.
        constraints: Name to constraint, as ``oneproj.Problem`` takes them.
        objective: The loss on all data, for the ``solution``; see
            ``AutoPenalty.finish``.
        on_failure: ``"raise"`` if no feasible point was found when training ends, or
            ``"return"``: then ``solution.status`` says so.
        progress: Show how far the projection is once it takes long.
        penalty_options: Other arguments of ``AutoPenalty``, such as ``seed``; its
            ``model`` is the model that is trained.
        kwargs: As ``Trainer`` takes them. ``optimizers=(optimizer, None)`` passes a
            ``OneProjection``; the default is the ``AdamW`` of the training arguments.

    Attributes:
        penalty: The ``AutoPenalty`` of this training, None before it.
        solution: What the projection at the end returned.

    **Checkpoints** hold the outer iterate, which is not projected;
    ``load_best_model_at_end`` projects the best of them.

    **Gradients** of the penalty are those of a loss: scaled, accumulated and clipped
    with the others.

    Example:
        >>> import oneproj, tempfile
        >>> from transformers import PretrainedConfig, PreTrainedModel
        >>> from transformers import TrainingArguments
        >>> class Model(PreTrainedModel):
        ...     config_class = PretrainedConfig
        ...     def __init__(self, config):
        ...         super().__init__(config)
        ...         self.w = torch.nn.Parameter(torch.zeros(2))
        ...         self.post_init()
        ...     def forward(self, target):
        ...         return {"loss": (self.w - target).square().sum()}
        >>> model = Model(PretrainedConfig())
        >>> size = oneproj.function(lambda: model.w.square().sum())
        >>> quiet = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no"}
        >>> folder = tempfile.TemporaryDirectory()
        >>> trainer = ConstrainedTrainer(
        ...     model,
        ...     TrainingArguments(folder.name, max_steps=100, use_cpu=True, **quiet),
        ...     train_dataset=[{"target": torch.tensor([3.0, 4.0])}] * 100,
        ...     optimizers=(oneproj.OneProjection(model.parameters(), lr=0.1), None),
        ...     constraints={"size": size <= 1.0},
        ... )
        >>> _ = trainer.train()
        {'train_runtime': ...}
        >>> folder.cleanup()
        >>> trainer.solution.feasible, model.w.square().sum().item() <= 1.0
        (True, True)
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - those of Trainer
        constraints: Mapping[str, AbstractTerm],
        objective: AbstractExpression | None = None,
        on_failure: OnFailure = "raise",
        progress: bool | None = None,
        penalty_options: Mapping[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401 - those of Trainer
    ) -> None:
        """Make the trainer; the penalty is made when training begins."""
        super().__init__(*args, **kwargs)
        self._constraints, self._objective = constraints, objective
        self._on_failure, self._progress = on_failure, progress
        self._penalty_options = dict(penalty_options or {})
        self._resume_from: str | None = None
        self._watched: object = None  # the optimizer that the penalty watches
        self.penalty: AutoPenalty | None = None
        self.solution: Solution | None = None
        events = _Events(
            begin=self._begin,
            epoch_end=lambda: show_outer(self.optimizer),  # the best may be loaded next
            save=self._save_penalty,
            end=self._finish,
        )
        self.add_callback(events)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,  # noqa: FBT001 - as there
        *args: Any,  # noqa: ANN401 - those of Trainer
        **kwargs: Any,  # noqa: ANN401 - those of Trainer
    ) -> Any:  # noqa: ANN401 - a TrainOutput
        """Train as ``Trainer`` does, and project once at the end.

        Raises:
            InfeasibleError: No feasible point was reached.
            CheckpointError: A checkpoint to resume from has no state of a penalty.
        """
        if resume_from_checkpoint is True:
            last = get_last_checkpoint(self.args.output_dir)
            resume_from_checkpoint = True if last is None else last
        resumes = isinstance(resume_from_checkpoint, str | Path)
        self._resume_from = str(resume_from_checkpoint) if resumes else None
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401
        """Make the backward pass of the loss, then that of the penalty."""
        loss: Tensor = super().training_step(*args, **kwargs)
        if self.penalty is not None:
            share = self.penalty() / self.current_gradient_accumulation_steps
            self.accelerator.backward(share)
        return loss

    def save_model(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Save the outer iterate; the next training step brings the inner one back."""
        show_outer(self.optimizer)
        super().save_model(*args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Log residuals and strengths beside the loss of training."""
        if self.penalty is not None and "loss" in logs:
            logs |= as_logs(self.penalty)
        super().log(logs, *args, **kwargs)

    def _begin(self) -> None:
        """Make the penalty, or continue with that of a checkpoint."""
        steps = inside(self.optimizer)
        if self.penalty is None or self._watched is not steps:
            options = {"model": self.model, **self._penalty_options}
            self.penalty = AutoPenalty(steps, self._constraints, **options)
            self._watched = steps
        if self._resume_from is not None:
            self.penalty.load_state_dict(_load(Path(self._resume_from)))
        self.solution = None

    def _save_penalty(self) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.penalty is not None and not self.args.save_only_model:
            torch.save(self.penalty.state_dict(), folder / PENALTY_FILE)

    def _finish(self) -> None:
        if self.penalty is not None:
            # It is judged as it is used after training: without autocast.
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
            self.solution = self.penalty.finish(
                self._objective, on_failure=self._on_failure, progress=self._progress
            )


class _Events(TrainerCallback):  # type: ignore[misc]  # Any to mypy, see pyproject
    """Calls what a ``ConstrainedTrainer`` does at some moments of its training."""

    def __init__(self, **calls: Callable[[], object]) -> None:
        self._calls = calls

    def on_train_begin(self, *_: object, **__: object) -> None:
        self._calls["begin"]()

    def on_epoch_end(self, *_: object, **__: object) -> None:
        self._calls["epoch_end"]()

    def on_save(self, *_: object, **__: object) -> None:
        self._calls["save"]()

    def on_train_end(self, *_: object, **__: object) -> None:
        self._calls["end"]()


def _load(folder: Path) -> dict[str, Any]:
    try:
        path = folder / PENALTY_FILE
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        message = (
            f"The checkpoint {str(folder)!r} has no {PENALTY_FILE}, so the penalty's "
            "strengths are not known. Resume from a checkpoint that a "
            "ConstrainedTrainer saved, with save_only_model=False."
        )
        raise CheckpointError(message) from error
    return state
