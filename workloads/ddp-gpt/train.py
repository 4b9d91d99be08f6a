"""Data-parallel training of a small transformer under torchrun: NCCL on GPUs, gloo on CPUs, gradient accumulation."""

import contextlib
import os

import torch
from torch import distributed, nn
from torch.nn import functional

from perfci import phases

LAYERS, WIDTH = int(os.environ.get("DDP_LAYERS", "2")), int(os.environ.get("DDP_WIDTH", "64"))
BATCH, LENGTH = int(os.environ.get("DDP_BATCH", "4")), int(os.environ.get("DDP_LENGTH", "32"))
ACCUMULATE = int(os.environ.get("DDP_ACCUMULATE", "2"))
VOCABULARY = 1024

cuda = torch.cuda.is_available()
local_rank = int(os.environ.get("LOCAL_RANK", "0"))
device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
distributed.init_process_group("nccl" if cuda else "gloo")

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
plain = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), body, nn.Linear(WIDTH, VOCABULARY)).to(device)
model = nn.parallel.DistributedDataParallel(plain, device_ids=[local_rank] if cuda else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

torch.manual_seed(1 + distributed.get_rank())  # every rank its own data
data = torch.randint(VOCABULARY, (64 * BATCH, LENGTH + 1))
loader = torch.utils.data.DataLoader(data, batch_size=BATCH, drop_last=True, pin_memory=cuda)

while True:  # perfci ends the process once it has measured
    for index, batch in enumerate(phases.loop(loader, accumulate=ACCUMULATE)):
        last = (index + 1) % ACCUMULATE == 0
        with phases.phase("h2d"):
            batch = batch.to(device, non_blocking=True)
        with contextlib.nullcontext() if last else model.no_sync():  # gradients travel once per step
            with phases.phase("forward"), torch.autocast(device.type, torch.bfloat16):
                logits = model(batch[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten()) / ACCUMULATE
            with phases.phase("backward"):
                loss.backward()
        phases.samples(BATCH * LENGTH)
        if last:
            with phases.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            phases.log_loss(loss.detach() * ACCUMULATE)
    if not phases.measuring():
        break
distributed.destroy_process_group()
