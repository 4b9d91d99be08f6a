"""Image classification with a residual network: worker processes, pinned copies, channels-last, mixed precision."""

import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

WIDTH, BLOCKS = int(os.environ.get("RESNET_WIDTH", "8")), int(os.environ.get("RESNET_BLOCKS", "1"))
BATCH, SIZE = int(os.environ.get("RESNET_BATCH", "8")), int(os.environ.get("RESNET_SIZE", "32"))
WORKERS = int(os.environ.get("RESNET_WORKERS", "2"))
CLASSES = 100


class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Noise images made on the fly, with the augmentation a real loader would do (flip, normalise)."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(256, (3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
        image = image.flip(2) if index % 2 else image
        return (image.float() - 127.5) / 64.0, index % CLASSES


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with batch norm and a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps in and out."""
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Sequential:
    """Four stages of bottlenecks; RESNET_WIDTH 64 and RESNET_BLOCKS 3 come close to ResNet-50."""
    layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)]
    inputs = WIDTH
    for stage in range(4):
        for block in range(BLOCKS):
            width = WIDTH * 2**stage
            layers.append(Bottleneck(inputs, width, 2 if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(
    Images(), batch_size=BATCH, num_workers=WORKERS, drop_last=True, pin_memory=device.type == "cuda",
    persistent_workers=WORKERS > 0,
)  # fmt: skip
model = resnet().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * BATCH / 256, momentum=0.9, weight_decay=1e-4)
scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")

while True:  # perfci ends the process once it has measured
    for images, labels in phases.loop(loader):
        with phases.phase("h2d"):
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            labels = labels.to(device, non_blocking=True)
        with (
            phases.phase("forward"),
            torch.autocast(device.type, torch.float16 if scaler.is_enabled() else torch.bfloat16),
        ):
            loss = functional.cross_entropy(model(images).float(), labels)
        with phases.phase("backward"):
            scaler.scale(loss).backward()
        with phases.phase("optimizer"):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        phases.log_loss(loss)
        phases.samples(BATCH)
    if not phases.measuring():
        break
