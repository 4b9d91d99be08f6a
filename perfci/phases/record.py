"""The sidecar file (docs/sidecar.md): what the process itself knows about its launch."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from perfci.phases import process

if TYPE_CHECKING:
    from perfci.phases.driver import Driver

SCHEMA_VERSION = 1


def with_rank(path: str | None) -> str | None:
    """``x.json`` as ``x.rank3.json`` for a process that is one of several ranks."""
    rank, world = process.rank_and_world()
    if path is None or world == 1:
        return path
    stem, extension = os.path.splitext(path)  # noqa: PTH122  (pathlib is a slow import)
    return f"{stem}.rank{rank}{extension}"


def _loss_values(losses: list[Any]) -> list[float | None]:
    values: list[float | None] = []
    for loss in losses:
        if loss is None:
            values.append(None)
            continue
        number = float(loss.float().mean()) if hasattr(loss, "float") else float(loss)
        values.append(number if math.isfinite(number) else None)
    return values


def _content(driver: Driver, status: str) -> dict[str, Any]:
    rank, world = process.rank_and_world()
    whole = status == "complete"
    losses = _loss_values(driver.losses) if whole else []
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "reason": driver.reason,
        "pid": os.getpid(),
        "rank": rank,
        "world_size": world,
        "collector": driver.plan.collector,
        "marks": driver.marks_kind,
        "asked": {
            "warmup_steps": driver.plan.warmup,
            "warmup_cap": driver.plan.warmup_cap,
            "wall_steps": driver.plan.wall,
            "capture_steps": driver.plan.capture,
        },
        "steady": driver.steady,
        "windows": {
            name: {
                "clock": window.clock.kind,
                "steps": len(window),
                "step_wall_ns": window.step_wall_ns,
                "samples": window.samples,
            }
            for name, window in driver.windows.items()
        },
        "losses": losses,
        "not_finite_losses": [
            step for step, value in enumerate(losses) if value is None and driver.losses[step] is not None
        ],
        "versions": process.versions(),
    }
    optional: dict[str, Any] = {
        "time_to_first_step_ns": driver.first_step_ns,
        "energy_uj": driver.energy_uj,
        "cpu_instructions": driver.instructions,
        "gpu": process.gpu(),
    }
    content.update({name: value for name, value in optional.items() if value is not None})
    if whole:
        content.update(process.peak_memory())
    return content


def write(driver: Driver, status: str) -> None:
    """Write the sidecar whole or not at all. Only a complete one has losses and peaks: to read them is to wait."""
    path = with_rank(driver.plan.sidecar)
    assert path is not None
    text = json.dumps(_content(driver, status), allow_nan=False)
    temporary = f"{path}.{os.getpid()}.part"
    with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    os.replace(temporary, path)  # noqa: PTH105
