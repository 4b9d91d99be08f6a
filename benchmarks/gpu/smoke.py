"""Runs every canonical workload once on a GPU, and keeps what each launch said.

    python benchmarks/gpu/smoke.py OUT [WORKLOAD …]

Writes OUT/doctor.json, OUT/<workload>.json (`perfci run -f json`), OUT/<workload>.log and OUT/smoke.tsv (workload, exit
code, seconds). The first thing to run on a new kind of machine.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
version: 1
workloads: [workloads/*]
measure: {collector: nsys, timeout_s: 180}
"""


def make_repository(folder: Path) -> None:
    """A git repository with the workloads of this checkout."""
    shutil.copytree(ROOT / "workloads", folder / "workloads", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "perfci.yaml").write_text(CONFIG)
    (folder / ".gitignore").write_text(".perfci/\n__pycache__/\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Add the workloads")


def git(folder: Path, *arguments: str) -> None:
    """Run git with an identity of its own."""
    identity = ["-c", "user.name=perfci", "-c", "user.email=perfci@perfci.invalid"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def perfci(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run perfci there."""
    return subprocess.run(
        [sys.executable, "-m", "perfci", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def main(out: Path, names: list[str]) -> None:
    """Run the workloads one after the other; a failure does not stop the others."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_repository(folder)
        (out / "doctor.json").write_text(perfci(folder, "doctor", "-f", "json").stdout)
        rows = []
        for name in names or sorted(path.parent.name for path in ROOT.glob("workloads/*/workload.yaml")):
            started = time.monotonic()
            done = perfci(folder, "run", "-w", name, "--preset", "gpu", "-f", "json")
            seconds = time.monotonic() - started
            (out / f"{name}.json").write_text(done.stdout)
            (out / f"{name}.log").write_text(done.stderr)
            rows.append(f"{name}\t{done.returncode}\t{seconds:.1f}")
            print(rows[-1], "\n   ", done.stderr.strip()[-600:].replace("\n", "\n    "), flush=True)
        (out / "smoke.tsv").write_text("workload\texit code\tseconds\n" + "\n".join(rows) + "\n")
        shutil.make_archive(str(out / "reports"), "gztar", folder / ".perfci" / "launches")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
