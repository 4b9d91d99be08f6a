"""What is told of a checkout once its preparation has run: real git, a preparation that is a function."""

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from heard import Heard
from repository import Repository

from perfci.capture.worktree import worktrees
from perfci.pipeline import measure
from perfci.pipeline.measure import prepare_checkout
from perfci.pipeline.workspace import open_workspace


@pytest.mark.parametrize("fetches", [True, False])
def test_submodules_that_the_preparation_fetched_are_not_told_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetches: bool
) -> None:
    repository = Repository(tmp_path / "repository")
    head = repository.git("rev-parse", "HEAD")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{head},lib")
    repository.git("commit", "--quiet", "-m", "a submodule")
    repository.write("untracked.txt", "")
    (repository.root / "lib").mkdir()

    def fetch(worktree, *_, **__):
        if fetches:
            subprocess.run(["touch", "lib/code"], cwd=worktree.path, check=True)
        return SimpleNamespace(reused=False, duration_ns=1, notes=())

    monkeypatch.setattr(measure, "prepare", fetch)
    workspace = open_workspace(repository.root)
    (workload,) = workspace.project.select(())
    workload = replace(workload, spec=replace(workload.spec, prepare=("fetch",)))
    git = workspace.require_repository()
    with worktrees(git, [git.resolve("HEAD")]) as (checkout,):
        codes = [note.code for note in prepare_checkout(workspace, workload, checkout, Heard())]
    assert codes == ["untracked-files"] if fetches else ["submodules-empty", "untracked-files"]
