"""The diff in docs/instrumenting.md is a real one: it applies, both scripts train alike, and perfci sees the phases."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "instrumenting.md"
STEPS = "warmup_steps: 2, wall_steps: 5, capture_steps: 5"


def in_folder(folder: Path, *command: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PERFCI_", "GIT_"))}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A repository with the script as it was, and the diff beside it."""
    (block,) = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    folder = tmp_path / "repository"
    folder.mkdir()
    lines = [line or " " for line in block.splitlines()]  # an editor may have cut the blank of an empty line
    (tmp_path / "marks.diff").write_text("\n".join(lines) + "\n")
    (folder / "train.py").write_text("".join(f"{line[1:]}\n" for line in lines[3:] if line[0] in " -"))
    in_folder(folder, "git", "init", "--quiet")
    return folder


def test_the_diff_marks_a_whole_script_and_changes_nothing_else(before: Path) -> None:
    plain = in_folder(before, sys.executable, "train.py")
    assert re.fullmatch(r"(epoch \d: loss \d\.\d{4}\n){2}", plain)
    in_folder(before, "git", "apply", "../marks.diff")
    assert in_folder(before, sys.executable, "train.py") == plain

    workload = f"{{name: train, command: python train.py, {STEPS}}}"
    (before / "perfci.yaml").write_text(f"workloads:\n  - {workload}\nmeasure: {{collector: torch}}\n")
    in_folder(before, "git", "add", ".")
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false")
    in_folder(before, "git", *identity, "commit", "--quiet", "-m", "Mark the phases")
    (run,) = json.loads(in_folder(before, sys.executable, "-m", "perfci", "run", "-f", "json"))["runs"]
    walls = {phase for phase, told in run["phases"].items() if "wall_ns" in told["metrics"]}
    assert {"step", "data", "h2d", "forward", "backward", "optimizer"} <= walls
    assert "throughput_per_s" in run["phases"]["run"]["metrics"]
