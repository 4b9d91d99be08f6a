"""Training with a validation pass every few steps, as short epochs have it: validation must record no gradients."""

import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

WIDTH, LAYERS = int(os.environ.get("EVAL_WIDTH", "64")), int(os.environ.get("EVAL_LAYERS", "4"))
BATCH, EVERY = int(os.environ.get("EVAL_BATCH", "32")), int(os.environ.get("EVAL_EVERY", "5"))
VALIDATION_BATCHES = int(os.environ.get("EVAL_BATCHES", "2"))
FEATURES, CLASSES = 64, 10

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def batches(count: int) -> torch.utils.data.DataLoader[tuple[torch.Tensor, ...]]:
    """A loader over ``count`` batches of noise with labels."""
    data = torch.utils.data.TensorDataset(
        torch.randn(count * BATCH, FEATURES), torch.randint(CLASSES, (count * BATCH,))
    )
    return torch.utils.data.DataLoader(data, batch_size=BATCH, pin_memory=device.type == "cuda")


body = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())]
model = nn.Sequential(nn.Linear(FEATURES, WIDTH), *body, nn.Linear(WIDTH, CLASSES)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
training, validation = batches(64), batches(VALIDATION_BATCHES)


def validate() -> torch.Tensor:
    """Mean loss over the validation set, on the device."""
    model.eval()
    with torch.no_grad():
        losses = [
            functional.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
            for x, y in validation
        ]
    model.train()
    return torch.stack(losses).mean()


done = 0
while True:  # perfci ends the process once it has measured
    for x, y in phases.loop(training):
        with phases.phase("h2d"):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with phases.phase("forward"):
            loss = functional.cross_entropy(model(x), y)
        with phases.phase("backward"):
            loss.backward()
        with phases.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        done += 1
        if done % EVERY == 0:
            with phases.phase("validation"):
                validate()
        phases.log_loss(loss)
        phases.samples(BATCH)
    if not phases.measuring():
        break
