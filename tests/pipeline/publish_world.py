"""A measuring machine, a publishing machine and a GitHub between them: real git, real databases, real perfci processes.

Only the launches are made up (`runs`): what a GPU would have measured.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from unittest import mock

from perfci.cli import main
from perfci.model.environment import Environment
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.run import Launch, Note, Revision, Run, Series
from perfci.store.store import open_store

CONFIG = """\
workloads:
  - {name: gpt, command: python train.py}
judge:
  gates:
    - {metric: unprofiled_wall_ns, budget: 2%}
    - {metric: sync_count}
"""
GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
STEP_NS = 40_000_000
WOBBLE = (0.0, 0.001, -0.001, 0.0005, -0.0005, 0.0002, -0.0008, 0.0003)
START = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
REPOSITORY = {"id": 1, "full_name": "octo/train", "default_branch": "main"}


def run(
    commit,
    *,
    workload="gpt",
    slower=0.0,
    syncs=1,
    pair=0,
    position=0,
    schedule="s",
    gpu="NVIDIA H200",
    start=START,
    **more,
):
    """One launch; its step takes (1 + slower) × STEP_NS, with a little noise that both sides share."""
    step_ns = round(STEP_NS * (1 + slower) * (1 + WOBBLE[pair % len(WOBBLE)]) * (1 + 1e-4 * (position % 3)))
    steps = 4
    finding = Finding(
        rule="accidental-sync",
        phase="step",
        title="cudaStreamSynchronize in each step",
        evidence=(Quantity(name="calls per step", value=float(syncs), unit="count"),),
        confidence=Confidence.HIGH,
        advice="Keep the loss on the GPU.",
        location=SourceLocation(path="train.py", line=3),
    )
    values = {
        "workload": workload,
        "revision": Revision(label=commit[:12], commit=commit),
        "environment": Environment.of({"gpu_model": gpu, "gpu_count": "1", "world_size": "1", "driver": "570.2"}),
        "launch": Launch(
            started_at=start + timedelta(minutes=position),
            duration_ns=20 * 10**9,
            schedule=schedule,
            pair=pair,
            position=position,
        ),
        "step_count": steps,
        "series": (
            Series(phase="step", metric="unprofiled_wall_ns", values=(step_ns,) * 6),
            Series(phase="step", metric="wall_ns", values=(step_ns + 100_000,) * steps),
            Series(phase="step", metric="sync_count", values=(syncs,) * steps),
        ),
        "findings": (finding,) if syncs > 1 else (),
    }
    return Run(**{**values, **more})


def sides(base, head, *, pairs=6, slower=0.0, syncs=1, **more):
    """Both sides, launched in turns."""
    found = []
    for pair in range(pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        for place, side in enumerate(order):
            changed = {"slower": slower, "syncs": syncs} if side else {}
            found.append(run((base, head)[side], pair=pair, position=2 * pair + place, **changed, **more))
    return found


def spoiled(one):
    return Run(
        **{
            **{name: getattr(one, name) for name in one.__slots__},
            "notes": (Note(code="throttled", text="the GPU was throttled", spoils=True),),
        }
    )


class World:
    """``measured`` is the checkout on the GPU machine, ``trusted`` the one of the default branch that publishes."""

    def __init__(self, root, server):
        self.root, self.server, self.number = root, server, 0
        self.measured, self.trusted = root / "measured", root / "trusted"
        self.summary = root / "summary.md"
        self.database = f"sqlite:///{root / 'history.db'}"
        self.measured.mkdir()
        self.git("init", "-q", "-b", "main")
        self.base = self.commit(**{"perfci.yaml": CONFIG, "train.py": "print(1)\n", ".gitignore": ".perfci/\n"})
        self.git("checkout", "-q", "-b", "topic")
        self.head = self.commit(**{"train.py": "print(2)\n"})
        self.git("checkout", "-q", "main")
        self.clone()
        server.state.add_pull(7, head_sha=self.head, head_repository="mallory/train")

    def git(self, *arguments, cwd=None):
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd or self.measured,
            env=os.environ | GIT,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, **files):
        for name, text in files.items():
            (self.measured / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", f"Commit {len(files)}")
        return self.git("rev-parse", "HEAD")

    def clone(self):
        """The default branch as the publishing job checks it out."""
        if self.trusted.exists():
            self.git("pull", "-q", cwd=self.trusted)
        else:
            self.git("clone", "-q", "--single-branch", "--branch", "main", str(self.measured), str(self.trusted))

    def perfci(self, *arguments, cwd, process=False, **environ):
        """`perfci …` in a folder, with this environment alone: a process of its own, or (faster) inside this one."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PERFCI_", "GITHUB_", "GH_", "COLUMNS"))}
        words = [str(argument) for argument in arguments]
        if process:
            return subprocess.run(
                [sys.executable, "-m", "perfci", *words], cwd=cwd, env={**clean, **environ},
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, {**clean, **environ}, clear=True),
            mock.patch.object(sys, "excepthook", sys.excepthook),
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(words)
        return subprocess.CompletedProcess(words, int(code), out.getvalue(), err.getvalue())

    def bundle(self, *runs, revisions=None, run_id=500, attempt=1, arguments=()):
        """What the measuring job leaves: these runs in its database, and `perfci bundle` of them."""
        with open_store(f"sqlite:///{self.measured / '.perfci' / 'perfci.db'}") as store:
            store.add_runs(runs)
        return self.bundle_of(
            revisions or f"{self.base}...{self.head}", run_id=run_id, attempt=attempt, arguments=arguments
        )

    def bundle_of(self, revisions, *, run_id=500, attempt=1, arguments=()):
        self.number += 1
        path = self.root / f"perfci-{self.number}.json.gz"
        done = self.perfci(
            "bundle", revisions, "-o", path, *arguments, cwd=self.measured, GITHUB_REPOSITORY="octo/train",
            GITHUB_RUN_ID=str(run_id), GITHUB_RUN_ATTEMPT=str(attempt),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return path

    def publish(self, name, payload, *bundles, arguments=(), command="publish", process=False, **environ):
        """The publishing job of an event. The last summary is in ``summary``."""
        event = self.root / "event.json"
        event.write_text(json.dumps(payload))
        self.summary.unlink(missing_ok=True)
        given = [part for path in bundles for part in ("--bundle", path)]
        extra = ["--db", self.database] if command == "publish" else []
        return self.perfci(
            command, *given, *extra, *arguments, cwd=self.trusted, process=process,
            **{
                "GITHUB_EVENT_NAME": name,
                "GITHUB_EVENT_PATH": str(event),
                "GITHUB_REPOSITORY": "octo/train",
                "GITHUB_RUN_ID": "900",
                "GITHUB_RUN_ATTEMPT": "1",
                "GITHUB_STEP_SUMMARY": str(self.summary),
                "GITHUB_API_URL": self.server.url,
                "GITHUB_SERVER_URL": self.server.web_url,
                "GITHUB_TOKEN": self.server.state.token,
                **environ,
            },
        )  # fmt: skip

    def fork(self, **more):
        """The event after a measuring run of a pull request from a fork."""
        run = {
            "id": 500,
            "run_attempt": 1,
            "event": "pull_request",
            "head_sha": self.head,
            "head_branch": "topic",
            "head_repository": {"full_name": "mallory/train"},
            "pull_requests": [],
            "conclusion": "success",
        }
        return "workflow_run", {"repository": REPOSITORY, "workflow_run": {**run, **more}}

    def push(self, sha, run_id, **more):
        """The event after a measuring run of a push to the default branch."""
        return self.fork(
            id=run_id,
            event="push",
            head_sha=sha,
            head_branch="main",
            head_repository={"full_name": "octo/train"},
            **more,
        )

    def comment(self, body, login="alice"):
        said = self.server.state.add_comment(7, login, body)
        comment = {"id": said["id"], "user": {"login": login}, "body": body}
        issue = {"number": 7, "pull_request": {"url": "x"}}
        return "issue_comment", {"repository": REPOSITORY, "issue": issue, "comment": comment}

    def stored(self, workload="gpt"):
        """Commits that history holds."""
        with open_store(self.database) as store:
            return store.measured_commits(workload)

    def shown(self):
        """Our comments."""
        state = self.server.state
        return [c["body"] for c in state.comments if c["login"] == state.login]
