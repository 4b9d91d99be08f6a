"""What a launch does to tracked files is undone, in real git worktrees within a repository."""

import shutil
from pathlib import Path

import pytest
from git_sandbox import Sandbox, repo

from perfci.capture.intact import kept_intact
from perfci.capture.worktree import worktrees
from perfci.errors import MeasurementError


@pytest.fixture
def box(tmp_path: Path) -> Sandbox:
    made = Sandbox(tmp_path / "r")
    for name in ("train.py", "a file.txt", "folder/:(top)odd\nname", "log", ".gitignore"):
        made.write(name, "made\n" if name == ".gitignore" else "1\n")
    made.commit("all")
    return made


def contents(checkout: Path) -> dict[str, str]:
    files = (p for p in checkout.rglob("*") if p.is_file() and p.name != ".git")
    return {str(p.relative_to(checkout)): p.read_text() for p in files}


def test_changed_staged_deleted_and_added_files_are_as_before_and_others_stay(box: Sandbox) -> None:
    revision = repo(box).resolve("HEAD")
    with worktrees(repo(box), [revision]) as (tree,):
        (tree.path / "log").write_text("by prepare\n")
        before = contents(tree.path)
        with kept_intact(tree.path) as changed:
            (tree.path / "train.py").write_text("2\n")
            (tree.path / "log").write_text("by prepare, and more\n")
            (tree.path / "folder" / ":(top)odd\nname").unlink()
            (tree.path / "added").write_text("x")
            (tree.path / "made").write_text("ignored: a launch may leave it for the next one")
            (tree.path / "untracked").write_text("x")
            for words in (("add", "added"), ("mv", "a file.txt", "moved"), ("commit", "-m", "a launch that commits")):
                box.git("-C", str(tree.path), *words)
        assert sorted(changed) == ["a file.txt", "added", "folder/:(top)odd\nname", "log", "moved", "train.py"]
        after = contents(tree.path)
        assert [after.pop(name, "")[:1] for name in ("made", "untracked")] == ["i", "x"]
        assert after == before
        with kept_intact(tree.path) as changed:
            pass
        assert changed == []


def fail_after_writing(path: Path) -> None:
    path.write_text("2\n")
    raise MeasurementError("it failed")


def test_files_are_put_back_after_a_launch_that_failed(box: Sandbox) -> None:
    with worktrees(repo(box), [repo(box).resolve("HEAD")]) as (tree,):
        with pytest.raises(MeasurementError, match="it failed"), kept_intact(tree.path):
            fail_after_writing(tree.path / "train.py")
        assert (tree.path / "train.py").read_text() == "1\n"


def test_a_launch_that_deletes_git_is_told_and_the_repository_around_it_is_left_alone(box: Sandbox) -> None:
    with worktrees(repo(box), [repo(box).resolve("HEAD")]) as (tree,):
        box.write("train.py", "the user's own change\n")
        with pytest.raises(MeasurementError, match="cannot be put back"), kept_intact(tree.path):
            (tree.path / ".git").unlink()
        assert (box.root / "train.py").read_text() == "the user's own change\n"


def test_folders_without_git_and_deleted_checkouts_are_no_concern_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    with kept_intact(folder) as changed:
        (folder / "x").write_text("x")
        shutil.rmtree(folder)
    assert changed == []
