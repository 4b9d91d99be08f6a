"""What autophase costs a script: the same script with and without it, in turns, on this machine's CPU.

    python benchmarks/autophase/overhead.py [--pairs 6]

Two scripts: `small`, where a step is short and the marks weigh most, and `deep`, a transformer of 12 layers with some
hundred modules. Each process times its own steps after a warm-up; no collector is on, as in perfci's unprofiled window.
Printed per script: the step without autophase, and the median and range over pairs of the ratio with/without, for the
wall time and for the processor time of a step (which other processes on the machine disturb less).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, os, statistics, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
name, warmup, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if name == "small":
    shape, model = (64,), nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
else:
    shape = (16, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()
batches = DataLoader(TensorDataset(torch.randn(8 * (warmup + steps + 2), *shape)), batch_size=8)
wall, start = [], None
for number, (x,) in enumerate(batches):
    if number == warmup:
        begun = time.process_time_ns()
    if number >= warmup:
        now = time.perf_counter_ns()
        if start is not None:
            wall.append(now - start)
        start = now
    if number == warmup + steps:
        break
    x = x.to(torch.float32)
    optimizer.zero_grad()
    loss = criterion(model(x), x)
    loss.backward()
    optimizer.step()
json.dump({"wall_ns": statistics.median(wall), "cpu_ns": (time.process_time_ns() - begun) / steps}, sys.stdout)
"""


def run(script: Path, name: str, warmup: int, steps: int, *, marked: bool) -> dict[str, float]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PERFCI_", "NSYS_"))}
    environment["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        if marked:
            environment["PYTHONPATH"] = f"{ROOT / 'perfci' / 'autophase' / 'inject'}{os.pathsep}{ROOT}"
            plan = {"AUTOPHASE": "1", "SIDECAR": f"{folder}/sidecar.json", "CAPTURE": "off"}
            plan |= {"WARMUP_STEPS": "10", "WARMUP_CAP": "10", "WALL_STEPS": "1000000"}
            environment |= {f"PERFCI_{name}": value for name, value in plan.items()}
        command = [sys.executable, script, name, str(warmup), str(steps)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert Path(folder, "sidecar.json").exists() == marked
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(SCRIPT)
        for name, warmup, steps in (("small", 200, 3000), ("deep", 30, 200)):
            found = []
            for pair in range(pairs):
                order = (False, True) if pair % 2 == 0 else (True, False)
                both = {marked: run(script, name, warmup, steps, marked=marked) for marked in order}
                found.append((both[False], both[True]))
            for clock in ("wall_ns", "cpu_ns"):
                ratios = sorted(marked[clock] / plain[clock] for plain, marked in found)
                plain_us = statistics.median(plain[clock] for plain, _ in found) / 1000
                added_us = statistics.median(marked[clock] - plain[clock] for plain, marked in found) / 1000
                print(
                    f"{name:6} {clock[:-3]:4}  step {plain_us:9.1f} us  with/without {statistics.median(ratios):.3f} "
                    f"({ratios[0]:.3f} to {ratios[-1]:.3f})  added {added_us:7.1f} us  pairs {pairs}"
                )


if __name__ == "__main__":
    main()
