"""Temporary checkouts: exact content, nothing of the user's touched, nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from git_sandbox import Sandbox

from perfci.capture.repository import Repository
from perfci.capture.supervise import MARKER
from perfci.capture.worktree import missing_content, remove_stale, worktrees
from perfci.errors import MeasurementError
from perfci.model.run import Revision


@pytest.fixture
def box(tmp_path):
    made = Sandbox(tmp_path / "repo")
    made.commit("one", **{"train.py": "1", "data/x": "x"})
    made.commit("two", **{"train.py": "2"})
    return made


@pytest.fixture
def repo(box):
    return Repository.discover(box.root)


def contents(path: Path):
    return {str(p.relative_to(path)): p.read_text() for p in path.rglob("*") if p.is_file() and p.name != ".git"}


def leftovers(box):
    folder = box.root / ".perfci/worktrees"
    return sorted(p.name for p in folder.iterdir() if p.name != "registry.lock")


def test_both_sides_are_checked_out_and_the_user_s_checkout_is_untouched(box, repo):
    box.write("train.py", "dirty")
    box.git("branch", "other")
    before = box.state()
    with worktrees(repo, [repo.resolve("HEAD~1"), repo.resolve("main")]) as (old, new):
        assert contents(old.path) == {"train.py": "1", "data/x": "x"}
        assert contents(new.path) == {"train.py": "2", "data/x": "x"}
        assert old.path.is_relative_to(box.root / ".perfci")
        assert Sandbox.git(box, "-C", str(old.path), "status", "--porcelain") == ""
        assert Sandbox.git(box, "-C", str(old.path), "rev-parse", "HEAD") == old.revision.commit
        (old.path / "output").mkdir()
        (old.path / "output/weights").write_text("w")
        (old.path / "train.py").write_text("workload writes into its source")
        assert box.state()["files"] == before["files"]
        assert box.state()["index"] == before["index"]
        assert not [line for line in box.git("status", "--porcelain").split("\n") if "perfci" in line]
    assert box.state() == before
    assert leftovers(box) == []


def test_the_dirty_side_is_the_working_tree(box, repo):
    box.write("train.py", "dirty")
    box.write("new/file", "n")
    (box.root / "data/x").unlink()
    revision = repo.working_tree()
    box.write("train.py", "edited while perfci measures")
    before = box.state()
    with worktrees(repo, [repo.resolve("HEAD"), revision]) as (clean, dirty):
        assert contents(clean.path) == {"train.py": "2", "data/x": "x"}
        assert contents(dirty.path) == {"train.py": "dirty", "new/file": "n"}
    assert box.state() == before


def test_untracked_files_are_named_where_the_checked_out_commit_is_measured(box, repo):
    for number in range(4):
        box.write(f"n{number}", "x")
    (box.root / os.fsdecode(b"a\xff")).write_text("a name that is no text")
    with worktrees(repo, [repo.resolve("HEAD~1"), repo.resolve("HEAD")]) as (old, new):
        assert old.notes == ()
        (note,) = new.notes
        assert not (new.path / "n0").exists()
    assert note.code == "untracked-files"
    assert "not part of HEAD (a\N{REPLACEMENT CHARACTER}, n0, n1 and 2 more)" in note.text
    assert "--dirty" in note.text
    assert not note.spoils
    with worktrees(repo, [repo.resolve("HEAD"), repo.working_tree()]) as (clean, dirty):
        assert (clean.notes, dirty.notes) == ((), ())


def test_a_revision_against_itself_gets_two_checkouts_with_paths_of_equal_length(box, repo):
    head = repo.resolve("HEAD")
    with worktrees(repo, [head, head]) as (one, two):
        assert one.path != two.path
        assert len(str(one.path)) == len(str(two.path))
        first = one.path
    with worktrees(repo, [head]) as (again,):
        assert again.path == first  # builds that hold absolute paths can be reused


def test_user_hooks_do_not_run_and_branches_in_use_do_not_matter(box, repo):
    hook = box.write(".git/hooks/post-checkout", "#!/bin/sh\ntouch $GIT_DIR/hook-ran\n")
    hook.chmod(0o755)
    with worktrees(repo, [repo.resolve("main")]):
        assert not list((box.root / ".git").rglob("hook-ran"))


def test_an_exception_cleans_up(box, repo):
    before = box.state()
    with pytest.raises(ZeroDivisionError), worktrees(repo, [repo.resolve("HEAD")] * 2):
        raise ZeroDivisionError
    assert leftovers(box) == []
    assert box.state() == before


def test_a_failed_second_checkout_removes_the_first(box, repo):
    before = box.state()
    head = repo.resolve("HEAD")
    broken = Revision(label="gone", commit="1" * 40, tree="2" * 40)
    with pytest.raises(MeasurementError, match="could not check gone out"), worktrees(repo, [head, broken]):
        pytest.fail("entered")
    with pytest.raises(MeasurementError, match="label of an import"), worktrees(repo, [head, Revision(label="v1")]):
        pytest.fail("entered")
    assert leftovers(box) == []
    assert box.state() == before


HOLDER = """
    import sys, time
    from pathlib import Path
    from perfci.capture.repository import Repository
    from perfci.capture.worktree import worktrees
    repo = Repository.discover(Path(sys.argv[1]))
    try:
        with worktrees(repo, [repo.resolve("HEAD~1"), repo.resolve("HEAD")]) as sides:
            print(*(side.path for side in sides), flush=True)
            time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def hold(box):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(box.root)], stdout=subprocess.PIPE, text=True
    )
    paths = [Path(word) for word in process.stdout.readline().split()]
    assert all((path / "train.py").exists() for path in paths)
    return process, paths


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_clean_up(box, number):
    before = box.state()
    process, _ = hold(box)
    process.send_signal(number)
    assert process.wait(timeout=30) == 130
    assert leftovers(box) == []
    assert box.state() == before


def test_the_next_perfci_removes_what_a_killed_one_left_and_leaves_a_living_one_alone(box, repo):
    before = box.state()
    killed, dead_paths = hold(box)
    living, living_paths = hold(box)
    assert not set(dead_paths) & set(living_paths)
    killed.kill()
    killed.wait(timeout=30)
    assert all(path.exists() for path in dead_paths)
    abandoned = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(300)"], cwd=dead_paths[0], env={MARKER: "abandoned"}
    )
    while b"abandoned" not in Path(f"/proc/{abandoned.pid}/environ").read_bytes():
        time.sleep(0.02)
    assert remove_stale(repo) == tuple(sorted(dead_paths))
    assert abandoned.wait(timeout=10) == -signal.SIGTERM
    assert not any(path.exists() for path in dead_paths)
    assert all((path / "train.py").exists() for path in living_paths)
    with worktrees(repo, [repo.resolve("HEAD")]) as (mine,):
        assert mine.path not in living_paths
    living.terminate()
    living.wait(timeout=30)
    assert leftovers(box) == []
    assert box.state() == before


def test_a_half_removed_checkout_is_recovered(box, repo):
    killed, (path, _) = hold(box)
    killed.kill()
    killed.wait(timeout=30)
    (path / ".git").unlink()
    with worktrees(repo, [repo.resolve("HEAD~1")]) as (mine,):
        assert mine.path == path
        assert contents(path) == {"train.py": "1", "data/x": "x"}
    assert leftovers(box) == []
    assert box.git("worktree", "list", "--porcelain").count("worktree ") == 1


def test_worktrees_of_the_user_stay_even_when_their_disk_is_away(box, repo, tmp_path):
    box.git("worktree", "add", "-q", "--detach", str(tmp_path / "theirs"))
    (tmp_path / "theirs").rename(tmp_path / "unmounted")
    with worktrees(repo, [repo.resolve("HEAD")]):
        pass
    (tmp_path / "unmounted").rename(tmp_path / "theirs")
    assert Sandbox.git(box, "-C", str(tmp_path / "theirs"), "status", "--porcelain") == ""


def test_it_works_inside_a_linked_worktree(box, tmp_path):
    box.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = Repository.discover(tmp_path / "linked")
    with worktrees(linked, [linked.resolve("HEAD")]) as (mine,):
        assert mine.path.is_relative_to(tmp_path / "linked/.perfci")
        assert contents(mine.path) == {"train.py": "2", "data/x": "x"}


def test_it_works_inside_a_submodule(box, tmp_path):
    outer = Sandbox(tmp_path / "outer")
    outer.commit("o")
    outer.git("submodule", "--quiet", "add", str(box.root), "inner")
    inner = Repository.discover(outer.root / "inner")
    with worktrees(inner, [inner.resolve("HEAD~1")]) as (mine,):
        assert mine.path.is_relative_to(outer.root / "inner/.perfci")
        assert contents(mine.path) == {"train.py": "1", "data/x": "x"}
    assert outer.git("-C", "inner", "status", "--porcelain") == ""


def test_a_second_signal_does_not_interrupt_the_clean_up(box):
    before = box.state()
    process, _ = hold(box)
    for _ in range(20):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.005)
    assert process.wait(timeout=30) in (130, -signal.SIGTERM, -signal.SIGHUP)  # the last may come after the clean-up
    assert leftovers(box) == []
    assert box.state() == before


def test_many_at_once(box):
    script = HOLDER.replace("time.sleep(60)", "time.sleep(0.2)")
    started = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(box.root)], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    assert [process.wait(timeout=60) for process in started] == [0] * 6
    assert leftovers(box) == []
    assert box.git("worktree", "list", "--porcelain").count("worktree ") == 1


def test_submodules_and_lfs_pointers_are_named(box, tmp_path):
    inner = Sandbox(tmp_path / "inner")
    inner.commit("i", code="1")
    box.git("submodule", "--quiet", "add", str(inner.root), "lib")
    box.write(".gitattributes", "*.bin filter=lfs diff=lfs -text\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    box.commit("content elsewhere", **{"w.bin": pointer, "real.bin": "content", "text": pointer})
    repo = Repository.discover(box.root)
    with worktrees(repo, [repo.resolve("HEAD~1"), repo.resolve("HEAD")]) as (old, new):
        assert old.notes == ()
        assert [note.code for note in new.notes] == ["submodules-empty", "lfs-pointers"]
        assert "(lib)" in new.notes[0].text
        assert "(w.bin)" in new.notes[1].text
        assert not any(note.spoils for note in new.notes)
        (new.path / "lib/code").write_text("fetched")
        assert [note.code for note in missing_content(new.path)] == ["lfs-pointers"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_checkout_is_a_clear_error_as_user(box, repo):
    box.root.chmod(0o555)
    with pytest.raises(MeasurementError, match="cannot write"), worktrees(repo, [repo.resolve("HEAD")]):
        pytest.fail("entered")
    box.root.chmod(0o755)


def test_perfci_s_folder_being_a_file_is_a_clear_error(box, repo):
    box.write(".perfci", "")
    with pytest.raises(MeasurementError, match="cannot write"), worktrees(repo, [repo.resolve("HEAD")]):
        pytest.fail("entered")


def test_a_folder_of_checkouts_that_cannot_be_locked_is_a_clear_error(box, repo):
    """As one that another user owns; also where root runs the tests, who may write everywhere."""
    (box.root / ".perfci/worktrees/registry.lock").mkdir(parents=True)
    with (
        pytest.raises(MeasurementError, match=r"cannot write in .*worktrees") as told,
        worktrees(repo, [repo.resolve("HEAD")]),
    ):
        pytest.fail("entered")
    assert ".perfci" in told.value.todo


def test_a_signal_during_the_checkout_itself_leaves_nothing(box):
    # enough files that the signal lands while git is writing them
    for number in range(3000):
        box.write(f"many/{number}", "x")
    box.commit("many")
    (box.root / ".perfci/worktrees").mkdir(parents=True)
    for delay in (0.0, 0.03, 0.1):
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLDER), str(box.root)])
        deadline = time.monotonic() + 20
        while not leftovers(box) and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(delay)
        process.terminate()
        process.wait(timeout=30)
        assert leftovers(box) == []
    assert box.git("worktree", "list", "--porcelain").count("worktree ") == 1
