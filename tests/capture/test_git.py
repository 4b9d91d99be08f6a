"""The git program: missing, hanging, and called inside a git hook."""

import shutil
from pathlib import Path

from git_sandbox import Sandbox, refused, repo

from perfci.capture.git import run_git
from perfci.capture.repository import Repository


def test_git_missing(box, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(lambda: Repository.discover(box.root), "git was not found", "install git")


def test_the_environment_of_a_git_hook_does_not_mislead(forked, monkeypatch, tmp_path):
    box, commits = forked
    other = Sandbox(tmp_path / "other")
    other.commit("elsewhere")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))
    assert repo(box).resolve("HEAD").commit == commits["t"]


def test_a_git_that_hangs_is_given_up(box, tmp_path, monkeypatch):
    fake = tmp_path / "bin/git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{Path(shutil.which('sleep')).parent}")
    monkeypatch.setattr("perfci.capture.git._GIT_TIMEOUT_S", 0.2)
    refused(lambda: run_git(box.root, "status"), "did not answer")
