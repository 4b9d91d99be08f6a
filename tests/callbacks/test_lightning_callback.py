"""The callback in a real Lightning Trainer."""

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

from torch.nn.functional import mse_loss  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from perfci.callbacks.lightning import PerfciCallback  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def loader(batches):
    return DataLoader(TensorDataset(torch.randn(batches * 4, 8), torch.randn(batches * 4, 1)), batch_size=4)


class Automatic(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _index):
        return mse_loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, _index):
        mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class ByHand(Automatic):
    """Two optimizers, as a GAN has them."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = torch.nn.Linear(8, 8)

    def training_step(self, batch, _index):
        for optimizer in self.optimizers():
            loss = mse_loss(self.layer(self.other(batch[0])), batch[1])
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.layer.parameters()), torch.optim.Adam(self.other.parameters())


def fit(module, *, batches=7, validation=None, **arguments):
    trainer = lightning.Trainer(
        **{"max_epochs": 30} | arguments,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        callbacks=[PerfciCallback()],
    )
    trainer.fit(module, loader(batches), validation)
    return trainer


def test_steps_of_a_fit_and_its_end(plan):
    read = plan(3, 4, 5)
    trainer = fit(Automatic(), validation=loader(2))
    sidecar, steps, outside = read()
    assert sidecar["status"] == "complete"
    assert [w["steps"] for w in sidecar["windows"].values()] == [3, 4, 5]
    assert steps == [["data", "forward", "optimizer", "backward", "optimizer"]] * 5  # zero_grad comes before backward
    assert trainer.global_step == 14  # the first of seven steps of an epoch is not counted
    assert len(sidecar["losses"]) == 12
    assert all(loss > 0 for loss in sidecar["losses"])
    assert "data" not in outside


def test_accumulation_with_validation_inside_the_epoch(plan):
    read = plan(1, 2, 8)
    fit(Automatic(), batches=16, validation=loader(2), accumulate_grad_batches=2, val_check_interval=3)
    sidecar, steps, outside = read()
    assert sidecar["status"] == "complete"
    micro = ["data", "forward", "optimizer", "backward"], ["data", "forward", "backward", "optimizer"]
    plain = [phase for phase in (*micro[0], *micro[1]) if phase != "validation"]
    for step in steps:
        assert [phase for phase in step if phase != "validation"] == plain
    assert any("validation" in step for step in steps)  # after an odd batch it falls into a step
    assert "validation" in outside


def test_manual_optimization_with_two_optimizers(plan):
    read = plan(1, 2, 4)
    fit(ByHand())
    sidecar, steps, _ = read()
    assert sidecar["status"] == "complete"
    assert steps == [["data", *["forward", "backward", "optimizer"] * 2, "forward"]] * 4


def test_an_exception_in_the_step(plan, sidecar_of):
    class Broken(Automatic):
        def training_step(self, batch, index):
            if index == 5:
                raise ValueError("no more")
            return super().training_step(batch, index)

    plan(1, 100, 1, collector="off")
    with pytest.raises(ValueError, match="no more"):
        fit(Broken())
    assert sidecar_of()["status"] == "short"
    assert sidecar_of()["reason"] == "ValueError was raised: no more after 3 of 100 wall steps"
