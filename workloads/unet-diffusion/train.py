"""Training of a denoising diffusion model: a small U-Net with time embedding, bf16, averaged weights."""

import math
import os

import torch
from torch import nn
from torch.nn import functional

from perfci import phases

WIDTH, BATCH = int(os.environ.get("UNET_WIDTH", "16")), int(os.environ.get("UNET_BATCH", "4"))
SIZE, LEVELS = int(os.environ.get("UNET_SIZE", "16")), int(os.environ.get("UNET_LEVELS", "2"))
NOISE_STEPS, EMBEDDING = 1000, 64


class Residual(nn.Module):
    """Two convolutions with group norm; the time embedding shifts the features between them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(EMBEDDING, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Feature maps in and out, time embedding (batch, EMBEDDING)."""
        h = self.conv1(functional.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(h)))


class UNet(nn.Module):
    """Down, middle, up, with skip connections (Ho et al. 2020, reduced)."""

    def __init__(self) -> None:
        super().__init__()
        widths = [WIDTH * 2**level for level in range(LEVELS + 1)]
        self.inward = nn.Conv2d(4, WIDTH, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.middle = Residual(widths[-1], widths[-1])
        self.up = nn.ModuleList(Residual(2 * b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.outward = nn.Conv2d(WIDTH, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Predicted noise of noisy latents (batch, 4, size, size) at times t (batch,)."""
        rates = torch.exp(torch.arange(EMBEDDING // 2, device=t.device) * (-math.log(10000) / (EMBEDDING // 2)))
        angles = t[:, None] * rates
        time, h, skips = torch.cat([angles.sin(), angles.cos()], dim=1), self.inward(x), []
        for block in self.down:
            h = block(h, time)
            skips.append(h)
            h = functional.avg_pool2d(h, 2)
        h = self.middle(h, time)
        for block in self.up:
            h = block(torch.cat([functional.interpolate(h, scale_factor=2.0), skips.pop()], dim=1), time)
        return self.outward(h)


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
latents = torch.randn(64 * BATCH, 4, SIZE, SIZE)
loader = torch.utils.data.DataLoader(latents, batch_size=BATCH, drop_last=True, pin_memory=device.type == "cuda")
model = UNet().to(device, memory_format=torch.channels_last)
average = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, NOISE_STEPS, device=device), 0)

while True:  # perfci ends the process once it has measured
    for batch in phases.loop(loader):
        with phases.phase("h2d"):
            clean = batch.to(device, non_blocking=True, memory_format=torch.channels_last)
        with phases.phase("forward"), torch.autocast(device.type, torch.bfloat16):
            times, noise = torch.randint(NOISE_STEPS, (BATCH,), device=device), torch.randn_like(clean)
            share = kept[times][:, None, None, None]
            predicted = model(share.sqrt() * clean + (1 - share).sqrt() * noise, times.float())
            loss = functional.mse_loss(predicted.float(), noise)
        with phases.phase("backward"):
            loss.backward()
        with phases.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with phases.phase("ema"), torch.no_grad():
            torch._foreach_lerp_(average, list(model.parameters()), 0.001)
        phases.log_loss(loss)
        phases.samples(BATCH)
    if not phases.measuring():
        break
