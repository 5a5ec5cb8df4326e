"""Constraints in Hugging Face's Trainer, with peft: loss, evaluation, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import oneproj

hf = pytest.importorskip(
    "transformers", reason="the extra `transformers` is not installed"
)
peft = pytest.importorskip("peft", reason="peft is not installed")
integration = pytest.importorskip("oneproj.integrations.transformers")

pytestmark = pytest.mark.filterwarnings(  # peft reads it
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
CAP = 0.66
STEPS = 60


class Tokens:
    """Sequences of tokens: the first tells the new labels, the second the old ones."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, 20, (480, 4), generator=draw)
        labels = (tokens[:, :2] > 9).long()
        self.rows = [
            {"input_ids": row, "labels": label}
            for row, label in zip(tokens[:320], labels[:320, 0], strict=True)
        ]
        self.old = tokens[320:], labels[320:, 1]

    def model(self) -> Any:  # noqa: ANN401
        """A tiny Bert whose attention and head are trained, the rest frozen."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = hf.BertConfig(
                vocab_size=20,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
            )
            lora = peft.LoraConfig(
                r=4,
                lora_alpha=16,
                target_modules=["query", "value"],
                modules_to_save=["classifier"],
            )
            return peft.get_peft_model(hf.BertForSequenceClassification(config), lora)

    def losses(self, model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:  # noqa: ANN401
        tokens, labels = batch
        return cross_entropy(model(input_ids=tokens).logits, labels, reduction="none")

    def excess(self, model: Any) -> float:  # noqa: ANN401
        """The old risk minus its cap, on all rows, in float64, in evaluation mode."""
        wide = model.double().eval()
        with torch.no_grad():
            return float(self.losses(wide, self.old).mean()) - CAP


@pytest.fixture
def data() -> Tokens:
    return Tokens()


def trainer(
    data: Tokens,
    folder: Path,
    *,
    adam: bool = False,
    lr: float = 0.01,
    kind: Any = integration.ConstrainedTrainer,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    model = data.model()
    risk = oneproj.mean(lambda batch: data.losses(model, batch), data=data.old)
    moving = [p for p in model.parameters() if p.requires_grad]
    settings: dict[str, Any] = {
        "max_steps": STEPS,
        "learning_rate": lr,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 2,
        "logging_steps": 10,
        "eval_strategy": "steps",
        "eval_steps": 25,
        "save_steps": 20,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    optimizer = None if adam else oneproj.OneProjection(moving, lr=lr)
    return kind(
        model,
        hf.TrainingArguments(str(folder), **settings | options),
        train_dataset=data.rows,
        eval_dataset=data.rows[:32],
        optimizers=(optimizer, None),
        constraints={"old risk": risk <= CAP},
        on_failure="raise" if lr > 1e-6 else "return",
        progress=False,
        penalty_options={"seed": 3},
    )


def answer(trainer: Any) -> dict[str, Tensor]:  # noqa: ANN401
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("adam", [False, True])
def test_it_trains_evaluates_saves_resumes_and_ends_feasible(
    data: Tokens, tmp_path: Path, *, adam: bool
) -> None:
    whole = trainer(data, tmp_path, adam=adam)
    frozen = {n: p.clone() for n, p in answer(whole).items() if "base_layer" in n}
    whole.train()
    assert whole.solution.feasible
    assert whole.solution.counts.projections == 1
    assert whole.solution.settings["updates"] == STEPS
    assert -0.05 < whole.solution.projection.residuals_before["old risk"] < 0.05
    expected = answer(whole)
    assert all(torch.equal(expected[name], value) for name, value in frozen.items())
    assert data.excess(whole.model) <= 0

    resumed = trainer(data, tmp_path, adam=adam)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-40"))
    assert resumed.solution.settings == whole.solution.settings
    for name, value in answer(resumed).items():
        assert torch.equal(value, expected[name])


def test_a_checkpoint_has_the_outer_iterate_that_is_evaluated(
    data: Tokens, tmp_path: Path
) -> None:
    # At 25 the model is saved after an evaluation, at 26 without one.
    seen: dict[int, list[Tensor]] = {}

    class Notes(hf.TrainerCallback):  # type: ignore[misc,name-defined]
        """Both iterates, at the end of some steps."""

        def on_step_end(self, _: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ANN401
            if state.global_step in {25, 26}:
                weight = more["model"].base_model.model.classifier.weight
                inner = weight.detach().clone()
                more["optimizer"].eval()
                outer = weight.detach().clone()
                more["optimizer"].train()
                seen[state.global_step] = [inner, outer]
                control.should_save = True

    run = trainer(data, tmp_path)
    run.add_callback(Notes())
    run.train()
    for step, (inner, outer) in seen.items():
        folder = tmp_path / f"checkpoint-{step}"
        saved = peft.load_peft_weights(str(folder), device="cpu")
        weight = saved["base_model.model.classifier.weight"]
        assert not torch.equal(inner, outer)
        assert torch.equal(weight, outer)
    assert len(seen) == 2
    # Between them training went on from the inner iterate, so the run is undisturbed.
    plain = trainer(data, tmp_path / "plain")
    plain.train()
    for name, value in answer(plain).items():
        assert torch.equal(value, answer(run)[name])


def test_the_best_checkpoint_is_what_is_projected(data: Tokens, tmp_path: Path) -> None:
    # It is the first: training stops later, before the next evaluation.
    class Stops(hf.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:  # noqa: ANN401
            control.should_training_stop = state.global_step == 55

    options: dict[str, Any] = {"eval_steps": 40, "save_strategy": "best"}
    run = trainer(
        data, tmp_path, load_best_model_at_end=True, save_only_model=True, **options
    )
    run.add_callback(Stops())
    run.train()
    assert run.state.best_model_checkpoint.endswith("40")
    best = peft.load_peft_weights(run.state.best_model_checkpoint, device="cpu")
    model = data.model()
    peft.set_peft_model_state_dict(model, best)
    before = run.solution.projection.residuals_before["old risk"]
    assert before == pytest.approx(data.excess(model), abs=1e-6)
    assert data.excess(run.model) <= 0


def test_accumulated_minibatches_make_one_penalty(data: Tokens, tmp_path: Path) -> None:
    # The model hardly moves, so both runs see the same gradients.
    strengths = []
    for batches in (1, 2):
        options = {
            "gradient_accumulation_steps": batches,
            "per_device_train_batch_size": 32 // batches,
            "eval_strategy": "no",
        }
        run = trainer(data, tmp_path, lr=1e-12, **options)
        run.loss_is_scaled_for_ga = False
        for module in run.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        run.train()
        strengths.append(run.penalty.strengths()["old risk"])
    assert strengths[0] > 0
    assert strengths[1] == pytest.approx(strengths[0], rel=1e-2)


def test_mixed_precision_ends_feasible_without_it(data: Tokens, tmp_path: Path) -> None:
    run = trainer(data, tmp_path, bf16=True)
    run.train()
    assert run.solution.feasible
    assert data.excess(run.model) <= 0


def test_residuals_and_strengths_are_logged_beside_the_loss(
    data: Tokens, tmp_path: Path
) -> None:
    run = trainer(data, tmp_path)
    run.train()
    trained = [entry for entry in run.state.log_history if "loss" in entry]
    assert len(trained) == STEPS // 10
    last = run.solution.settings["strengths"]["old risk"]
    assert trained[-1]["strength/old risk"] == pytest.approx(last)
    assert all(abs(entry["residual/old risk"]) < 1.0 for entry in trained)
    assert not any("residual" in e for e in run.state.log_history if "eval_loss" in e)


def test_the_answer_stays_when_it_is_evaluated_and_saved(
    data: Tokens, tmp_path: Path
) -> None:
    run = trainer(data, tmp_path)
    run.train()
    expected = answer(run)
    run.evaluate()
    run.save_model(str(tmp_path / "answer"))
    saved = peft.load_peft_weights(str(tmp_path / "answer"), device="cpu")
    name = "base_model.model.classifier.weight"
    assert torch.equal(saved[name], run.model.base_model.model.classifier.weight)
    assert all(torch.equal(value, expected[n]) for n, value in answer(run).items())
    run.train()  # the same penalty goes on
    assert run.solution.settings["updates"] == 2 * STEPS
    assert data.excess(run.model) <= 0


def test_it_goes_in_front_of_another_trainer(data: Tokens, tmp_path: Path) -> None:
    called = []

    class Other(hf.Trainer):  # type: ignore[misc,name-defined]
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            called.append(kwargs.get("return_outputs", False))
            return super().compute_loss(*args, **kwargs)

    class Both(integration.ConstrainedTrainer, Other):  # type: ignore[misc,name-defined]
        pass

    run = trainer(data, tmp_path, kind=Both, eval_strategy="no")
    run.train()
    assert called == [False] * 2 * STEPS
    assert data.excess(run.model) <= 0


def test_a_checkpoint_without_a_penalty_is_refused(
    data: Tokens, tmp_path: Path
) -> None:
    trainer(data, tmp_path).train()
    folder = tmp_path / "checkpoint-20"
    (folder / "oneproj_penalty.pt").unlink()
    with pytest.raises(oneproj.CheckpointError, match="ConstrainedTrainer saved"):
        trainer(data, tmp_path).train(resume_from_checkpoint=str(folder))
