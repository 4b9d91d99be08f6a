"""A small real git repository for tests, and what perfci says of it."""

import os
import subprocess
from pathlib import Path

import pytest

from perfci.capture.repository import Repository
from perfci.errors import UsageError

IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}


class Sandbox:
    """Files and commits in one folder."""

    def __init__(self, root: Path, *, branch: str = "main") -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", branch)

    def git(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=self.root, env=os.environ | IDENTITY, input=stdin, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"git {arguments}: {done.stderr}")
        return done.stdout.rstrip("\n")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, message: str, **files: str) -> str:
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def state(self) -> dict[str, object]:
        """All that perfci must leave as it is: index bytes, references, files, status, configuration, worktrees."""
        gitdir = self.root / self.git("rev-parse", "--git-dir")
        index = gitdir / "index"
        return {
            "index": index.read_bytes() if index.exists() else None,
            "index time": index.stat().st_mtime_ns if index.exists() else None,
            "head": (gitdir / "HEAD").read_text(),
            "refs": self.git("for-each-ref"),
            "config": (self.root / ".git/config").read_text() if (self.root / ".git/config").exists() else None,
            "reflog": self.git("reflog", "--all", check=False),
            "worktrees": self.git("worktree", "list", "--porcelain"),
            "files": {
                str(path.relative_to(self.root)): (path.read_bytes() if path.is_file() else None)
                for path in sorted(self.root.rglob("*"))
                if ".git" not in path.parts and ".perfci" not in path.relative_to(self.root).parts
            },
        }


def repo(box):
    return Repository.discover(box.root)


def refused(call, *words):
    with pytest.raises(UsageError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)
