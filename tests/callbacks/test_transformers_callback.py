"""The callback in the real Hugging Face Trainer, with a model made from a config."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from perfci.callbacks.transformers import PerfciCallback  # noqa: E402

pytestmark = pytest.mark.torch


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        tokens = torch.arange(8) * (index + 1) % 50
        return {"input_ids": tokens, "labels": tokens}


def train(tmp_path, **arguments):
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    settings = transformers.TrainingArguments(
        str(tmp_path / "out"),
        **{"max_steps": 60, "per_device_train_batch_size": 4, "save_strategy": "no", "report_to": []} | arguments,
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        settings,
        train_dataset=Tokens(),
        eval_dataset=Tokens(),
        callbacks=[PerfciCallback()],
    )
    trainer.train()
    return trainer


STEP = ["data", "forward", "backward", "optimizer"]


def test_steps_of_a_trainer_and_its_end(plan, tmp_path):
    read = plan(3, 4, 5)
    trainer = train(tmp_path, logging_strategy="no")
    sidecar, steps, outside = read()
    assert sidecar["status"] == "complete"
    assert [w["steps"] for w in sidecar["windows"].values()] == [3, 4, 5]
    assert steps == [STEP] * 5
    # Six steps an epoch, the first of each not counted: 5 + 5 + 2 steps take 6 + 6 + 3 of the Trainer's.
    assert trainer.state.global_step == 15
    assert len(sidecar["losses"]) == 12
    assert all(2 < loss < 6 for loss in sidecar["losses"])
    assert "data" not in outside


def test_accumulation_logs_and_evaluation(plan, tmp_path):
    read = plan(1, 2, 6)
    train(
        tmp_path,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=3,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="steps",
        save_steps=5,
    )
    sidecar, steps, outside = read()
    assert sidecar["status"] == "complete"
    micro = ["data", "forward", "backward", "forward", "backward", "optimizer"]
    assert len(steps) == 6
    assert [step[:6] for step in steps] == [micro] * 6
    assert {tuple(step[6:]) for step in steps} == {(), ("log",)}
    assert "validation" in outside
    assert not any("validation" in step for step in steps)


def test_a_training_that_ends_early_says_so(plan, tmp_path, sidecar_of):
    plan(2, 100, 5, collector="off")
    train(tmp_path, max_steps=6)
    assert sidecar_of()["status"] == "short"
    assert sidecar_of()["reason"] == "the Trainer ended after 3 of 100 wall steps"


def test_nothing_is_left_on_the_model(plan, tmp_path):
    plan(1, 1, 1)
    trainer = train(tmp_path)
    assert not trainer.model._forward_hooks
    assert trainer.state.global_step < 60
