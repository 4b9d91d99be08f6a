"""A small git repository with a training-like program that costs what its revision says: real launches, no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TRAIN = """\
import time

from cost import BACKWARD_S, FORWARD_S

from perfci import phases

for _ in range(100):
    for item in phases.loop(range(500)):
        with phases.phase("forward"):
            time.sleep(FORWARD_S)
        with phases.phase("backward"):
            time.sleep(BACKWARD_S)
"""
CONFIG = """\
version: 1
workloads:
  - {name: train, command: python train.py, warmup_steps: 2, wall_steps: 12, capture_steps: 12, timeout_s: 60}
measure: {collector: nsys}
judge:
  error_rate: 5%
  min_launches: 4
  max_launches: 6
  gates:
    - {metric: unprofiled_wall_ns, phase: step, budget: 30%}
    - {metric: wall_ns, phase: forward, budget: 30%}
"""


class Repository:
    """A repository under test, and perfci run in it as a user would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("train.py", TRAIN)
        self.write("perfci.yaml", CONFIG)
        self.commit("Train", forward_s=0.004)

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def commit(self, message: str, *, forward_s: float, backward_s: float = 0.004) -> str:
        self.write("cost.py", f"FORWARD_S, BACKWARD_S = {forward_s}, {backward_s}\n# {message}\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD")

    def branch(self, name: str, **costs: float) -> None:
        self.git("switch", "--quiet", "-c", name)
        self.commit(name, **costs)
        self.git("switch", "--quiet", "main")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perfci", *arguments],
            cwd=self.root,
            env={k: v for k, v in os.environ.items() if not k.startswith("PERFCI_DATABASE")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def perfci(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as child:
            out, err = child.communicate(timeout=280)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def worktrees(self) -> list[str]:
        return [
            line for line in self.git("worktree", "list", "--porcelain").splitlines() if line.startswith("worktree")
        ]


def rows_of(stdout: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of the JSON of a comparison by phase and metric."""
    (workload,) = json.loads(stdout)["workloads"]
    return {(row["phase"], row["metric"]): row for row in workload["rows"]}
