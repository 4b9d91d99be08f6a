"""The main job on a small example: two revisions of a training script, measured, compared, explained.

Makes a git repository in demo-output/ with the `tiny` workload. Its second revision, on the branch `slower`, adds what
slows real training down most often: a wait for the loss in every step, and more work in the forward pass. Then it runs
`perfci compare main..slower --measure` there, as a user would. Exits 0 when perfci finds the regression, else 1.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "demo-output"
REPOSITORY = OUTPUT / "repository"
REGRESSION = 3


def git(*arguments: str) -> None:
    """Run git in the demo repository, independent of the user's own configuration."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=perfci demo", "-c", "user.email=demo@perfci.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(
        ["git", *identity, *arguments], cwd=REPOSITORY, env=environment, check=True, stdout=subprocess.DEVNULL
    )


def make_repository() -> None:
    """Write the two revisions."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    REPOSITORY.mkdir(parents=True)
    git("init", "--initial-branch=main")
    shutil.copytree(
        ROOT / "workloads" / "tiny", REPOSITORY / "workloads" / "tiny", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "scripts" / "demo.perfci.yaml", REPOSITORY / "perfci.yaml")
    (REPOSITORY / ".gitignore").write_text(".perfci/\n__pycache__/\n")
    git("add", ".")
    git("commit", "-m", "Train a tiny model")
    git("switch", "--quiet", "-c", "slower")
    script = REPOSITORY / "workloads" / "tiny" / "train.py"
    text = script.read_text()
    for before, after in ((BEFORE, AFTER), (BEFORE_LOG, AFTER_LOG), ("import os\n", "import os\nimport time\n")):
        if text.count(before) != 1:
            sys.exit(f"{script}: the demo looks for this line, once: {before.strip()}")
        text = text.replace(before, after)
    script.write_text(text)
    git("commit", "-am", "Log the loss and add an auxiliary term")
    git("switch", "--quiet", "main")


BEFORE = "                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())\n"
AFTER = (
    BEFORE
    + """                for _ in range(4):  # an auxiliary term that nobody asked the price of
                    loss = loss + 1e-3 * (model(tokens[:, :-1]).detach() - logits).square().mean()
"""
)
BEFORE_LOG = "            phases.log_loss(loss)\n"
AFTER_LOG = (
    """            with phases.phase("log"):
                time.sleep(0.02)  # a metrics service that answers slowly
                print(f"loss {loss.item():.3f}")
"""
    + BEFORE_LOG
)


def main() -> int:
    """Run the demo."""
    make_repository()
    page = OUTPUT / "report.html"
    command = ["compare", "main..slower", "--measure", "-o", str(page)]
    print(f"$ cd {REPOSITORY} && perfci {' '.join(command)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "perfci", *command], cwd=REPOSITORY, check=False)
    if done.returncode != REGRESSION:
        print(f"demo: wanted a regression (exit code 3), got exit code {done.returncode}", file=sys.stderr)
        return 1
    print("\nThe second revision is slower, and perfci said so with exit code 3, as CI would see it.")
    print(f"Report page: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
