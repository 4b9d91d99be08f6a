"""What the runner asks of the measured process, read from its environment, and when a warm-up is over."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

CAPTURES = ("cuda", "nvtx", "torch", "off")
_EXTRA_WARMUP_STEPS = 30
_STEADY_STEPS = 3
_STEADY_RATIO = 0.05


class Plan:
    """Steps of one launch. ``warmup`` at least and ``warmup_cap`` at most, then ``wall`` with no profiler, then
    ``capture`` under ``collector`` (one of CAPTURES, or ``module:class``; with ``off`` nothing is captured)."""

    __slots__ = ("capture", "collector", "sidecar", "torch_trace", "wall", "warmup", "warmup_cap")

    def __init__(
        self,
        *,
        sidecar: str,
        collector: str = "off",
        torch_trace: str | None = None,
        warmup: int = 10,
        warmup_cap: int | None = None,
        wall: int = 50,
        capture: int = 30,
    ) -> None:
        own = ":" in collector
        if not own and collector not in CAPTURES:
            raise ValueError(f"PERFCI_CAPTURE is {collector!r}, wanted one of {', '.join(CAPTURES)}")
        if (own or collector == "torch") and not torch_trace:
            raise ValueError(f"PERFCI_CAPTURE={collector} needs PERFCI_TORCH_TRACE, the file to write")
        if warmup < 0 or wall < 0 or capture < 1:
            raise ValueError("warm-up and wall steps must be at least 0, capture steps at least 1")
        self.sidecar = sidecar
        self.collector = collector
        self.torch_trace = torch_trace
        self.warmup = warmup
        self.warmup_cap = max(warmup, warmup + _EXTRA_WARMUP_STEPS if warmup_cap is None else warmup_cap)
        self.wall = wall
        self.capture = 0 if collector == "off" else capture
        if warmup == 0:  # asked for none
            self.warmup_cap = 0


def plan_from(
    environment: Mapping[str, str] = os.environ,
    *,
    warmup: int | None = None,
    wall: int | None = None,
    capture: int | None = None,
) -> Plan | None:
    """The plan of the process, or None outside perfci (no ``PERFCI_SIDECAR``). Arguments are the script's own wishes
    and win over the environment. ValueError names the variable that cannot be read."""
    sidecar = environment.get("PERFCI_SIDECAR")
    if not sidecar:
        return None

    def count(variable: str, default: int | None, own: int | None) -> int | None:
        text = environment.get(variable)
        if own is not None or text is None:
            return own if own is not None else default
        if not text.isascii() or not text.isdigit():
            raise ValueError(f"{variable} is {text!r}, wanted a number of steps")
        return int(text)

    asked_warmup = count("PERFCI_WARMUP_STEPS", 10, warmup)
    asked_wall = count("PERFCI_WALL_STEPS", 50, wall)
    asked_capture = count("PERFCI_CAPTURE_STEPS", 30, capture)
    assert asked_warmup is not None
    assert asked_wall is not None
    assert asked_capture is not None
    return Plan(
        sidecar=sidecar,
        collector=environment.get("PERFCI_CAPTURE", "off"),
        torch_trace=environment.get("PERFCI_TORCH_TRACE"),
        warmup=asked_warmup,
        warmup_cap=count("PERFCI_WARMUP_CAP", None, None),
        wall=asked_wall,
        capture=asked_capture,
    )


def is_steady(step_wall_ns: Sequence[int]) -> bool:
    """Whether the last three steps took as long as the three before them: medians within 5 %. False below six steps.

    Cold steps (compilation, autotuning, allocator growth, first batches) are slow and fall; two equal levels end the
    wait. A process whose steps never agree within 5 % runs into the cap, which the sidecar records.
    """
    if len(step_wall_ns) < 2 * _STEADY_STEPS:
        return False
    last = sorted(step_wall_ns[-_STEADY_STEPS:])[_STEADY_STEPS // 2]
    before = sorted(step_wall_ns[-2 * _STEADY_STEPS : -_STEADY_STEPS])[_STEADY_STEPS // 2]
    return abs(last - before) <= _STEADY_RATIO * before
