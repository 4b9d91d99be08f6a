"""A recurrent network written step by step: thousands of small kernels, bound by how fast the CPU can launch them."""

import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

WIDTH, BATCH = int(os.environ.get("RNN_WIDTH", "32")), int(os.environ.get("RNN_BATCH", "8"))
LENGTH = int(os.environ.get("RNN_LENGTH", "16"))
VOCABULARY = 256


class Model(nn.Module):
    """Character model with a gated cell unrolled in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.cells = nn.ModuleList(nn.GRUCell(WIDTH, WIDTH) for _ in range(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, length, vocabulary) of ids (batch, length)."""
        states = [torch.zeros(ids.shape[0], WIDTH, device=ids.device) for _ in self.cells]
        outputs = []
        for x in self.embed(ids).unbind(1):
            for index, cell in enumerate(self.cells):
                states[index] = cell(states[index - 1] if index else x, states[index])
            outputs.append(states[-1])
        return self.head(torch.stack(outputs, dim=1))


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = torch.randint(VOCABULARY, (64 * BATCH, LENGTH + 1))
loader = torch.utils.data.DataLoader(data, batch_size=BATCH, drop_last=True, pin_memory=device.type == "cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

while True:  # perfci ends the process once it has measured
    for batch in phases.loop(loader):
        with phases.phase("h2d"):
            batch = batch.to(device, non_blocking=True)
        with phases.phase("forward"):
            loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        with phases.phase("backward"):
            loss.backward()
        with phases.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        phases.log_loss(loss)
        phases.samples(BATCH)
    if not phases.measuring():
        break
