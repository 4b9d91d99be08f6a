"""Recommendation: large embedding tables with sparse gradients, pairwise interactions, small dense layers (DLRM)."""

import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

TABLES, ROWS = int(os.environ.get("DLRM_TABLES", "4")), int(os.environ.get("DLRM_ROWS", "1000"))
WIDTH, BATCH = int(os.environ.get("DLRM_WIDTH", "16")), int(os.environ.get("DLRM_BATCH", "64"))
DENSE, HOT = 13, 8


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU after each."""
    return nn.Sequential(*(m for a, b in zip(sizes, sizes[1:], strict=False) for m in (nn.Linear(a, b), nn.ReLU())))


class DLRM(nn.Module):
    """Bottom MLP for dense features, embedding bags for sparse ones, dot interactions, top MLP (Naumov et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = mlp(DENSE, 8 * WIDTH, WIDTH)
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True) for _ in range(TABLES))
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(mlp(WIDTH + pairs, 8 * WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, 1))
        self.register_buffer("lower", torch.tril_indices(TABLES + 1, TABLES + 1, -1), persistent=False)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Click logits (batch,) of dense (batch, features) and sparse ids (tables, batch, hot)."""
        x = self.bottom(dense)
        features = torch.stack([x, *(table(ids) for table, ids in zip(self.tables, sparse, strict=True))], dim=1)
        dots = torch.bmm(features, features.transpose(1, 2))
        return self.top(torch.cat([x, dots[:, self.lower[0], self.lower[1]]], dim=1)).squeeze(1)


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = 32 * BATCH
dense, clicks = torch.rand(rows, DENSE), torch.randint(2, (rows,)).float()
sparse = torch.randint(ROWS, (rows, TABLES, HOT))
data = torch.utils.data.TensorDataset(dense, sparse, clicks)
whole = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), BATCH, drop_last=True)
loader = torch.utils.data.DataLoader(data, sampler=whole, batch_size=None, pin_memory=device.type == "cuda")
model = DLRM().to(device)
tables = torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3)
layers = torch.optim.Adagrad([*model.bottom.parameters(), *model.top.parameters()], lr=1e-2)

while True:  # perfci ends the process once it has measured
    for batch in phases.loop(loader):
        with phases.phase("h2d"):
            x, ids, y = (part.to(device, non_blocking=True) for part in batch)
        with phases.phase("forward"):
            loss = functional.binary_cross_entropy_with_logits(model(x, ids.transpose(0, 1).contiguous()), y)
        with phases.phase("backward"):
            loss.backward()
        with phases.phase("optimizer"):
            for optimizer in (tables, layers):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        phases.log_loss(loss)
        phases.samples(BATCH)
    if not phases.measuring():
        break
