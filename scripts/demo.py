"""The main job on a small example: two revisions of a training script, measured, compared, explained.

Makes a git repository in demo-output/ with a training script. Its second revision, on the branch `slower`, adds what
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


def git(*arguments: str) -> str:
    """Run git in the demo repository, independent of the user's own configuration."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=perfci demo", "-c", "user.email=demo@perfci.invalid", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def make_repository() -> None:
    """Write the two revisions."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    REPOSITORY.mkdir(parents=True)
    git("init", "--initial-branch=main")
    script = REPOSITORY / "train.py"
    shutil.copy(ROOT / "workloads" / "tiny" / "train.py", script)
    shutil.copy(ROOT / "scripts" / "demo.perfci.yaml", REPOSITORY / "perfci.yaml")
    (REPOSITORY / ".gitignore").write_text(".perfci/\n__pycache__/\n")
    git("add", ".")
    git("commit", "-m", "Train a tiny model")
    git("switch", "--quiet", "-c", "slower")
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
    print(f"A pull request to be judged: the branch `slower` of {REPOSITORY} changes train.py:\n")
    print(git("diff", "--unified=0", "main", "slower").partition("@@")[2].partition("\n")[2])
    command = ["compare", "main..slower", "--measure", "-o", str(page)]
    print("perfci launches both revisions in turns under a profiler, about a minute in all:\n")
    print(f"$ cd {REPOSITORY} && perfci {' '.join(command)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "perfci", *command], cwd=REPOSITORY, check=False)
    if done.returncode != REGRESSION:
        print(f"demo: wanted a regression (exit code 3), got exit code {done.returncode}", file=sys.stderr)
        return 1
    print(f"\nperfci ended with exit code {REGRESSION}, a regression: in CI the check would be red.")
    print(f"The page is for a browser. What was judged, and by which budgets: {REPOSITORY / 'perfci.yaml'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
