"""Training that waits for its data: the decoding in the worker processes takes longer than the model's step."""

import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

WORKERS, BATCH = int(os.environ.get("LOADER_WORKERS", "1")), int(os.environ.get("LOADER_BATCH", "16"))
SIZE, PASSES = int(os.environ.get("LOADER_SIZE", "32")), int(os.environ.get("LOADER_PASSES", "2"))
CLASSES = 10


class Decoded(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Images whose decoding costs CPU time, as JPEG and augmentation do: repeated smoothing of noise."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(index))
        for _ in range(PASSES):
            image = functional.avg_pool2d(image, 3, stride=1, padding=1)
        return image[0], index % CLASSES


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(
    Decoded(), batch_size=BATCH, num_workers=WORKERS, drop_last=True, pin_memory=device.type == "cuda",
    persistent_workers=WORKERS > 0,
)  # fmt: skip
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES),
).to(device)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

while True:  # perfci ends the process once it has measured
    for images, labels in phases.loop(loader):
        with phases.phase("h2d"):
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with phases.phase("forward"):
            loss = functional.cross_entropy(model(images), labels)
        with phases.phase("backward"):
            loss.backward()
        with phases.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        phases.log_loss(loss)
        phases.samples(BATCH)
    if not phases.measuring():
        break
