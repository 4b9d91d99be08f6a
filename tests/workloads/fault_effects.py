"""Everything that some fault of workloads/faults.py changes, as one JSON object: run under a fault and under none."""

import json
import os

import torch
from torch import nn
from torch.utils.data import DataLoader

from perfci import phases
from perfci.phases import marks

seen = {}
torch.manual_seed(0)

loader = DataLoader(list(range(4)), num_workers=1, persistent_workers=True, prefetch_factor=3, pin_memory=True)
seen["pin_memory"] = loader.pin_memory
seen["workers"] = [loader.num_workers, loader.persistent_workers, loader.prefetch_factor]

p = nn.Parameter(torch.ones(2))
for optimizer in (torch.optim.AdamW([p], fused=True), torch.optim.Adam([p], fused=True), torch.optim.SGD([p])):
    seen[f"{type(optimizer).__name__}"] = [optimizer.defaults["fused"], optimizer.defaults["foreach"]]
    p.grad = torch.ones(2)
    optimizer.step()
seen["stepped"] = p.tolist()


def validate():
    with torch.no_grad():
        y = p * 2
        with torch.no_grad():
            z = p * 2
    return [y.requires_grad, z.requires_grad, torch.is_grad_enabled()]


@torch.no_grad()
def decorated():
    return (p * 2).requires_grad


seen["validation records"] = validate()
seen["decorated records"] = decorated()
with torch.inference_mode():
    seen["inference records"] = (p * 2).requires_grad

os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
ddp = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
with ddp.no_sync():
    seen["micro-steps travel"] = ddp.require_backward_grad_sync
seen["last step travels"] = ddp.require_backward_grad_sync
torch.distributed.destroy_process_group()

types = {}
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 17), nn.Linear(17, 4))
for index, layer in enumerate(model):
    layer.register_forward_hook(lambda _layer, _in, out, index=index: types.update({index: str(out.dtype)}))
for _ in range(2):
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(2, 4)).sum().backward()
seen["types"] = list(types.values())

wide = nn.Linear(256, 1024)
narrow = nn.Linear(1024, 256, bias=False)
other = nn.Linear(256, 256)
x = torch.randn(3, 256)
seen["feed-forward"] = [list(wide.weight.shape), list(wide.bias.shape), list(narrow.weight.shape)]
seen["feed-forward says"] = [wide.out_features, narrow.in_features]
seen["other layer"] = list(other.weight.shape)
y = narrow(torch.relu(wide(x)))
y.square().sum().backward()
seen["result"] = [float(value) for value in (y.square().sum(), wide.weight.grad.norm(), narrow.weight.grad.norm())]
seen["padding learns"] = bool(wide.weight.grad[1024:].any() or narrow.weight.grad[:, 1024:].any())
seen["random"] = torch.rand(()).item()

calls = []
torch.cuda.empty_cache = lambda: calls.append("empty_cache")
plain_item = torch.Tensor.item
torch.Tensor.item = lambda t: calls.append("item") or plain_item(t)
opened = []
marks.activate(marks.Marks("list", opened.append, lambda: None))
for _ in range(20):
    phases.log_loss(torch.ones(()))
marks.deactivate()
seen["calls"] = [calls.count("empty_cache"), calls.count("item")]
seen["opened"] = opened

print("effects", json.dumps(seen))
