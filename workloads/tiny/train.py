"""A small transformer on random tokens: the whole of a training step in miniature, in seconds on two cores or a GPU."""

import os

import torch
from torch import nn

from perfci import phases

LAYERS = int(os.environ.get("TINY_LAYERS", "2"))
WIDTH = int(os.environ.get("TINY_WIDTH", "64"))
BATCH = int(os.environ.get("TINY_BATCH", "8"))
LENGTH, VOCABULARY = 32, 256

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
corpus = torch.randint(VOCABULARY, (512, LENGTH + 1))
loader = torch.utils.data.DataLoader(corpus, batch_size=BATCH, shuffle=True, pin_memory=device.type == "cuda")

layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True)
body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), body, nn.Linear(WIDTH, VOCABULARY)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(100):
    with phases.epoch(epoch):
        for batch in phases.loop(loader):
            with phases.phase("h2d"):
                tokens = batch.to(device, non_blocking=True)
            with phases.phase("forward"):
                logits = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            with phases.phase("backward"):
                loss.backward()
            with phases.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            phases.log_loss(loss)
            phases.samples(len(batch))
