"""Pre-training of a decoder-only transformer (GPT-2 style): bf16 autocast, fused AdamW, gradient accumulation."""

import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

LAYERS, WIDTH, HEADS = (int(os.environ.get(name, "2")) for name in ("GPT_LAYERS", "GPT_WIDTH", "GPT_HEADS"))
BATCH, LENGTH = int(os.environ.get("GPT_BATCH", "4")), int(os.environ.get("GPT_LENGTH", "64"))
ACCUMULATE = int(os.environ.get("GPT_ACCUMULATE", "2"))
COMPILE = os.environ.get("GPT_COMPILE", "")
VOCABULARY = 2048


class Block(nn.Module):
    """Pre-norm attention and feed-forward, causal."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) in and out."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Token and position embeddings, blocks, tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, length, vocabulary) of token ids (batch, length)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = torch.randint(VOCABULARY, (64 * BATCH, LENGTH + 1))
loader = torch.utils.data.DataLoader(
    data, batch_size=BATCH, shuffle=True, drop_last=True, pin_memory=device.type == "cuda"
)
model: nn.Module = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
if COMPILE:
    model = torch.compile(model, mode=COMPILE)

while True:  # perfci ends the process once it has measured
    for index, batch in enumerate(phases.loop(loader, accumulate=ACCUMULATE)):
        with phases.phase("h2d"):
            batch = batch.to(device, non_blocking=True)
        with phases.phase("forward"), torch.autocast(device.type, torch.bfloat16):
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten()) / ACCUMULATE
        with phases.phase("backward"):
            loss.backward()
        phases.samples(BATCH * LENGTH)
        if (index + 1) % ACCUMULATE == 0:
            with phases.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            phases.log_loss(loss.detach() * ACCUMULATE)
    if not phases.measuring():
        break
