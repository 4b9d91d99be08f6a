"""Measures the golden losses of workloads on this machine and writes them into their workload.yaml.

    python scripts/golden_losses.py [--preset cpu-smoke] [--check] [WORKLOAD …]

Each workload is launched as it is and under VARIATIONS that honest machines differ in; the tolerance is TIMES_SPREAD
times the largest distance seen, at least MIN_TOLERANCE. Run it where the preset belongs (`--preset gpu` on a GPU), read
the diff, commit. With --check nothing is written; the exit code is 1 when losses leave the band of the file.
"""

import argparse
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfci.capture.launch import launch
from perfci.config.load import CONFIG_NAME, WORKLOAD_NAME, Workload, load_project
from perfci.model.settings import Collector

ROOT = Path(__file__).resolve().parents[1]
STEPS = 10
TIMES_SPREAD = 5.0
MIN_TOLERANCE = 0.005
VARIATIONS: dict[str, tuple[dict[str, str], ...]] = {
    "cpu-smoke": (
        {},
        {"OMP_NUM_THREADS": "2"},
        {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
    ),
    "gpu": ({}, {}, {"NVIDIA_TF32_OVERRIDE": "0"}),
}
"""What is set on top for the launches of a preset: other thread counts and vector units, or again the same."""


def losses_of(workload: Workload, variation: dict[str, str], *, checkout: Path, out_dir: Path) -> tuple[float, ...]:
    """The first STEPS losses of one launch."""
    settings = replace(
        workload.measure, collector=Collector.TORCH, warmup_steps=4, wall_steps=STEPS - 6, capture_steps=2
    )
    launched = launch(
        workload.spec,
        settings,
        checkout=checkout,
        out_dir=out_dir,
        tool=None,
        has_cuda=False,  # the torch collector opens its window itself
        extra_environment={"PERFCI_WARMUP_CAP": "4", **variation},
    )
    losses = launched.sidecars[0].losses[:STEPS]
    known = tuple(loss for loss in losses if loss is not None)
    if len(known) < STEPS:
        sys.exit(f"{workload.spec.name}: {len(known)} finite losses in {STEPS} steps")
    return known


def tolerance_of(launches: Sequence[Sequence[float]]) -> float:
    """Allowed relative distance from the first launch: rounded up to one digit."""
    spread = max(abs(x - y) / abs(y) for other in launches for x, y in zip(other, launches[0], strict=True))
    wanted = max(MIN_TOLERANCE, TIMES_SPREAD * spread)
    unit = 10.0 ** math.floor(math.log10(wanted))
    return float(f"{math.ceil(round(wanted / unit, 6)) * unit:.0e}")


def rewritten(text: str, preset: str, losses: Sequence[float], tolerance: float) -> str:
    """``text`` of a workload.yaml with the losses of ``preset``; every other line as it is."""
    found = re.search(rf"^  {re.escape(preset)}:\n(?:    .*\n)+", text, re.MULTILINE)
    if found is None:
        sys.exit(f"no preset {preset} in this form: two spaces, its name, and its keys indented by four")
    kept = [line for line in found[0].splitlines() if not re.match(r"    (losses|loss_tolerance):", line)]
    kept += [f"    losses: [{', '.join(f'{loss:.5g}' for loss in losses)}]", f"    loss_tolerance: {tolerance:g}"]
    return text[: found.start()] + "\n".join(kept) + "\n" + text[found.end() :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--preset", choices=VARIATIONS, default="cpu-smoke")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    worst = 0
    with tempfile.TemporaryDirectory(prefix="perfci-golden-") as folder:
        checkout = Path(folder, "checkout")
        shutil.copytree(ROOT / "workloads", checkout / "workloads")
        (checkout / CONFIG_NAME).write_text("version: 1\nworkloads: ['workloads/*']\n")
        project = load_project(checkout / CONFIG_NAME)
        for workload in project.select(asked.workloads, preset=asked.preset):
            assert workload.definition_file is not None
            compiled = "compile" in workload.spec.tags  # Inductor writes code that needs vector units
            launches = [
                losses_of(workload, variation, checkout=checkout, out_dir=Path(folder, "out"))
                for variation in VARIATIONS[asked.preset]
                if not (compiled and "ATEN_CPU_CAPABILITY" in variation)
            ]
            tolerance = tolerance_of(launches)
            print(
                f"{workload.spec.name}: {launches[0][0]:.5g} … {launches[0][-1]:.5g}, tolerance {tolerance:g}",
                flush=True,
            )
            if asked.check:
                band = workload.spec.loss_tolerance_ratio
                pairs = zip(launches[0], workload.spec.golden_losses, strict=False)
                outside = [step for step, (seen, wanted) in enumerate(pairs) if abs(seen - wanted) > band * abs(wanted)]
                if outside or not workload.spec.golden_losses:
                    print(f"  outside the golden band of {band:g} at steps {outside}", flush=True)
                    worst = 1
                continue
            file = ROOT / workload.definition_file
            assert file.name == WORKLOAD_NAME
            file.write_text(rewritten(file.read_text(), asked.preset, launches[0], tolerance))
    return worst


if __name__ == "__main__":
    os.environ.pop("PERFCI_SIDECAR", None)
    sys.exit(main())
