"""Scripts of frameworks that say nothing of perfci and use no callback of it."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRANSFORMERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        tokens = torch.arange(8) * (index + 1) % 50
        return {"input_ids": tokens, "labels": tokens}

config = GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
arguments = TrainingArguments(
    "out", max_steps=500, per_device_train_batch_size=2, gradient_accumulation_steps=2, eval_strategy="steps",
    eval_steps=7, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
)
Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()
print("trained to the end")
"""

LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return mse_loss(self.layer(batch[0]), batch[1])
    def validation_step(self, batch, index):
        mse_loss(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

def loader(batches):
    return DataLoader(TensorDataset(torch.randn(batches * 4, 8), torch.randn(batches * 4, 1)), batch_size=4)

Trainer(max_epochs=50, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu").fit(
    Module(), loader(8), loader(2)
)
print("trained to the end")
"""


def test_trainer_of_transformers(run_script):
    pytest.importorskip("accelerate")
    result = run_script(TRANSFORMERS)
    assert result.exit_code == 0, result.err
    assert result.window_steps() == {"warmup": 2, "wall": 3, "capture": 6}
    assert "trained to the end" not in result.out
    steps, outside = result.steps()
    tail = ["forward", "backward", "forward", "backward", "optimizer"]
    # accelerate looks one batch ahead: three fetches in the first step of an epoch, fewer in its last
    assert [step[-5:] for step in steps] == [tail] * 6
    assert all(set(step[:-5]) == {"data"} for step in steps)
    assert set(outside) <= {"validation"}


def test_trainer_of_lightning(run_script):
    pytest.importorskip("lightning")
    result = run_script(LIGHTNING)
    assert result.exit_code == 0, result.err
    assert result.window_steps() == {"warmup": 2, "wall": 3, "capture": 6}
    assert "trained to the end" not in result.out
    steps, outside = result.steps()
    # Lightning computes in a closure of the optimizer; its own part of that call comes first and last.
    assert steps == [["data", "optimizer", "forward", "backward", "optimizer"]] * 6
    assert set(outside) == {"validation"}
