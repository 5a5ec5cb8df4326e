"""Hard constraints in a run of Lightning's ``Trainer``.

Lightning has no hook that changes the loss, so one line of ``training_step`` adds the
penalty. The callback does the rest: it makes the penalty when the optimizer is there,
shows the outer iterate of ``OneProjection`` to validation and to whoever saves the
weights, writes logs, and projects once at the end.

What a checkpoint holds: ``state_dict`` has the outer iterate, and the optimizer's state
the inner one, as between ``eval()`` and ``train()``. So the file is fit for use, and a
resumed run goes on from the inner iterate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.integrations.common import as_logs, show_outer
from oneproj.methods.auto_penalty import AutoPenalty
from oneproj.methods.one_projection import OneProjection
from oneproj.problem.terms import AbstractExpression, AbstractTerm
from oneproj.progress import require
from oneproj.projection.project import OnFailure
from oneproj.results import Solution

require("lightning.pytorch", "lightning")

from lightning.pytorch import LightningModule, Trainer  # noqa: E402 - required first
from lightning.pytorch.callbacks import Callback  # noqa: E402


class ConstraintCallback(Callback):  # type: ignore[misc]  # Any to mypy, see pyproject
    """Keeps hard constraints in a fit: penalty, validation, checkpoints, projection.

    Return it from the module's ``configure_callbacks`` (or pass it to the ``Trainer``),
    and add ``callback.penalty()`` to the loss in ``training_step``. The optimizer is
    the one that ``configure_optimizers`` returns: a ``OneProjection`` or another.

    Args:
        constraints: Name to constraint, as ``Problem`` takes them.
        objective: The loss on all data, for the ``solution``; see
            ``AutoPenalty.finish``.
        on_failure: ``"raise"`` if no feasible point was found when training ends, or
            ``"return"``: then ``solution.status`` says so.
        progress: Show how far the projection is once it takes long.
        penalty_options: Other arguments of ``AutoPenalty``, such as ``seed``; its
            ``model`` is the Lightning module.

    Attributes:
        solution: What the projection at the end of the last fit returned.

    **Checkpoints** hold the outer iterate, which is not projected. They resume bit for
    bit if the data loader does. ``state_dict()`` of the module returns the outer
    iterate as well, while a fit is under way.

    Raises:
        InvalidProblemError: When training starts: there is not one optimizer, or an
            argument does not fit.

    Example:
        >>> import lightning as L, oneproj, torch
        >>> class Module(L.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.w = torch.nn.Parameter(torch.zeros(2))
        ...         size = oneproj.function(lambda: self.w.square().sum())
        ...         self.constraints = ConstraintCallback({"size": size <= 1.0})
        ...     def configure_callbacks(self):
        ...         return [self.constraints]
        ...     def configure_optimizers(self):
        ...         return oneproj.OneProjection(self.parameters(), lr=0.1)
        ...     def training_step(self, target, index):
        ...         return (self.w - target).square().sum() + self.constraints.penalty()
        >>> module = Module()
        >>> quiet = {"logger": False, "enable_checkpointing": False}
        >>> quiet |= {"enable_progress_bar": False, "enable_model_summary": False}
        >>> trainer = L.Trainer(max_steps=200, accelerator="cpu", **quiet)
        >>> targets = torch.tensor([[3.0, 4.0]] * 200)
        >>> trainer.fit(module, torch.utils.data.DataLoader(targets, batch_size=None))
        >>> module.constraints.solution.feasible, module.w.square().sum().item() <= 1.0
        (True, True)
    """

    def __init__(
        self,
        constraints: Mapping[str, AbstractTerm],
        *,
        objective: AbstractExpression | None = None,
        on_failure: OnFailure = "raise",
        progress: bool | None = None,
        **penalty_options: Any,  # noqa: ANN401 - AutoPenalty checks them
    ) -> None:
        """Keep the arguments; the penalty is made when training starts."""
        self._constraints, self._options = constraints, penalty_options
        self._objective, self._on_failure = objective, on_failure
        self._progress = progress
        self._penalty: AutoPenalty | None = None
        self._optimizer: Any = None
        self._saved: dict[str, Any] | None = None  # of a checkpoint, for the next start
        self._validates = self._saves = False  # with the outer iterate, for a while
        self._hooks: list[Any] = []
        self.solution: Solution | None = None

    def penalty(self) -> Tensor:
        """Return the penalty on a new minibatch, to add to the loss.

        Raises:
            InvalidProblemError: No fit with this callback is under way.
        """
        if self._penalty is None:
            message = (
                "penalty() was called, but no fit with this callback has started, so "
                "there is no optimizer to watch. Return the callback from the module's "
                "configure_callbacks, or pass it to Trainer(callbacks=[...]), and call "
                "penalty() in training_step alone."
            )
            raise InvalidProblemError(message)
        return self._penalty()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forget the fit before this one."""
        del trainer, pl_module
        if stage == "fit":
            self._unhook()
            self._penalty = self._optimizer = self.solution = self._saved = None
            self._validates = self._saves = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the penalty, or continue with that of a checkpoint."""
        if len(trainer.optimizers) != 1:
            message = (
                "ConstraintCallback needs one optimizer, but configure_optimizers "
                f"returned {len(trainer.optimizers)}: the penalty watches the steps of "
                "one. Put all parameters into one optimizer, with a group each."
            )
            raise InvalidProblemError(message)
        (optimizer,) = trainer.optimizers
        options = {"model": pl_module, **self._options}
        penalty = AutoPenalty(optimizer, self._constraints, **options)
        if self._saved is not None:
            penalty.load_state_dict(self._saved)
            self._saved = None
        if isinstance(optimizer, OneProjection):
            optimizer.train()  # in a checkpoint the outer iterate is shown
        self._penalty, self._optimizer = penalty, optimizer
        self._hooks = [
            pl_module.register_state_dict_pre_hook(lambda *_: self._before_saving()),
            pl_module.register_state_dict_post_hook(
                lambda _, state, *__: self._after_saving(state)
            ),
        ]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the outer iterate."""
        del trainer, pl_module
        self._validates = show_outer(self._optimizer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the inner iterate again."""
        del trainer, pl_module
        if self._validates:
            self._optimizer.train()
            self._validates = False

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Log residuals and strengths, as the module itself logs."""
        del trainer, outputs, batch, batch_idx
        if self._penalty is not None:
            pl_module.log_dict(as_logs(self._penalty))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Project once; the parameters hold the answer."""
        del trainer, pl_module
        if self._penalty is not None:
            self.solution = self._penalty.finish(
                self._objective, on_failure=self._on_failure, progress=self._progress
            )

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the optimizer as it is while the outer iterate is shown."""
        del pl_module
        if show_outer(self._optimizer):
            del checkpoint["optimizer_states"]  # before there is a second copy
            state = trainer.strategy.optimizer_state(self._optimizer)
            checkpoint["optimizer_states"] = [state]
            self._optimizer.train()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the penalty, for a checkpoint."""
        return {} if self._penalty is None else self._penalty.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of the penalty until training starts."""
        self._saved = state_dict

    def teardown(
        self, trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Leave the module as it was, but for the values of its parameters."""
        del trainer, pl_module
        if stage == "fit":
            self._unhook()

    def _before_saving(self) -> None:
        self._saves = show_outer(self._optimizer)

    def _after_saving(self, state: dict[str, Any]) -> None:
        """Copy what the outer iterate alone has, and show the inner one again."""
        if not self._saves:
            return
        groups = self._optimizer.param_groups
        moving = {p.data_ptr() for group in groups for p in group["params"]}
        for name, value in state.items():
            if isinstance(value, Tensor) and value.data_ptr() in moving:
                state[name] = value.clone()
        self._optimizer.train()
        self._saves = False

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
