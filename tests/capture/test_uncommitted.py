"""Working trees with changes, as revisions and refused, in real git repositories."""

import os

import pytest
from git_sandbox import Sandbox, refused, repo

from perfci.capture.uncommitted import changes, untracked_paths
from perfci.errors import UsageError


def test_a_dirty_tree_is_refused_where_head_is_measured(forked):
    box, c = forked
    box.write("new file", "x")
    box.write("f", "changed")
    r = repo(box)
    for text in ("main..", "main..HEAD", "main", "main...topic", "main..@"):
        with pytest.raises(UsageError, match="--dirty") as caught:
            r.resolve_range(text)
        assert caught.value.seen == "the working tree has uncommitted changes: f"
    # a hash, or another branch, says which commit is meant
    assert r.resolve_range(f"main..{c['t']}")[1].commit == c["t"]
    assert r.resolve_range("HEAD..main")[1].commit == c["c"]


def test_untracked_files_are_in_no_commit_and_do_not_keep_it_from_being_measured(forked):
    box, _ = forked
    box.write(".gitignore", "ignored\n")
    head = box.commit("ignore")
    box.write("notes.txt", "x")
    box.write("data/a", "x")
    box.write("data/b", "x")
    box.write("ignored", "x")
    r = repo(box)
    assert untracked_paths(box.root) == ("data/", "notes.txt")
    for text in ("HEAD", "@", "topic"):
        assert r.resolve_measured(text) == r.resolve(text)
    assert r.resolve_range("main..")[1].commit == head
    assert r.resolve_measured("HEAD", dirty=True).dirty
    box.git("add", "--intent-to-add", "notes.txt")  # it is on its way into a commit: a change
    refused(lambda: r.resolve_measured("HEAD"), "uncommitted changes: notes.txt")


def test_the_working_tree_as_a_revision(forked):
    box, c = forked
    box.write(".gitignore", "ignored\n")
    box.commit("ignore")
    head = box.git("rev-parse", "HEAD")
    assert repo(box).working_tree() == repo(box).resolve("HEAD")

    box.write("f", "changed, not staged")
    box.write("staged", "1")
    box.git("add", "staged")
    box.write("staged", "2")
    box.write("dir/untracked\nwith newline", "x")
    box.write("ignored", "x")
    box.write(".perfci/db.sqlite", "x")
    (box.root / "g").unlink()
    before = box.state()
    found = repo(box).working_tree()
    assert box.state() == before
    assert (found.commit, found.dirty) == (head, True)
    assert found.label == f"{head[:12]}+dirty"
    listed = box.git("ls-tree", "-r", "-z", "--name-only", found.tree).split("\0")
    assert sorted(filter(None, listed)) == [".gitignore", "dir/untracked\nwith newline", "f", "staged"]
    assert box.git("show", f"{found.tree}:staged") == "2"
    assert repo(box).working_tree().identity == found.identity
    box.write("f", "changed again")
    assert repo(box).working_tree().identity != found.identity

    baseline, candidate = repo(box).resolve_range("main..", dirty=True)
    assert baseline.commit == c["c"]
    assert candidate.dirty
    assert [x.dirty for x in repo(box).resolve_range("HEAD", dirty=True)] == [False, True]


def test_a_file_changed_in_the_moment_after_it_was_staged_is_seen(forked):
    box, _ = forked
    box.git("config", "core.trustctime", "false")  # stands for a change time as coarse as the modification time
    path = box.write("f", "1111")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    box.git("add", "f")
    path.write_text("2222")
    for file in (path, box.root / ".git/index"):  # equal sizes and times, as on a coarse clock
        os.utime(file, (1_000_000_000, 1_000_000_000))
    for _ in range(2):
        assert box.git("show", f"{repo(box).working_tree().tree}:f") == "2222"


def test_perfci_s_own_folder_does_not_make_a_tree_dirty(forked):
    box, _ = forked
    box.write(".perfci/log", "x")
    assert changes(box.root) == ()
    assert repo(box).resolve_range("main..HEAD")


@pytest.mark.parametrize("ignored", [".perfci/", ".perfci", "*.log"])
def test_perfci_s_own_folder_is_in_no_dirty_tree_whether_the_project_ignores_it_or_not(forked, ignored):
    box, _ = forked
    box.write(".perfci/log", "x")
    box.write(".gitignore", f"{ignored}\n")
    tree = repo(box).working_tree().tree
    assert set(box.git("ls-tree", "-r", "--name-only", tree).split()) >= {".gitignore", "f"}
    assert ".perfci" not in box.git("ls-tree", "-r", "--name-only", tree)


def test_touching_a_file_does_not_make_it_dirty(forked):
    box, _ = forked
    os.utime(box.root / "f", (1, 1))
    before = box.state()
    assert changes(box.root) == ()
    assert box.state() == before


def test_dirty_needs_the_candidate_to_be_checked_out(forked):
    box, _ = forked
    box.write("f", "x")
    refused(lambda: repo(box).resolve_range("topic..main", dirty=True), "--dirty", "check main out")


def test_one_revision_to_measure(forked):
    box, c = forked
    assert repo(box).resolve_measured("topic").commit == c["t"]
    box.write("f", "x")
    for name in ("topic", "HEAD", "@"):
        refused(lambda name=name: repo(box).resolve_measured(name), "uncommitted changes")
        assert repo(box).resolve_measured(name, dirty=True).dirty
    assert repo(box).resolve_measured("main").commit == c["c"]
    refused(lambda: repo(box).resolve_measured("main", dirty=True), "check main out")


def test_dirty_on_a_clean_tree_is_head(forked):
    box, c = forked
    assert repo(box).resolve_range("main..", dirty=True)[1].commit == c["t"]
    assert not repo(box).resolve_range("main..", dirty=True)[1].dirty


def test_unmerged_files_are_refused(forked):
    box, _ = forked
    box.commit("clash", f="other")
    box.git("merge", "main", check=False)
    refused(lambda: repo(box).resolve_range("main..", dirty=True), "merge conflicts")


def test_a_dirty_sparse_checkout_keeps_its_absent_files(box):
    box.write("keep/a", "1")
    box.write("away/b", "1")
    box.commit("a")
    box.git("sparse-checkout", "set", "keep")
    assert not (box.root / "away").exists()
    box.write("keep/a", "2")
    tree = repo(box).working_tree().tree
    assert box.git("ls-tree", "-r", "--name-only", tree).split("\n") == ["away/b", "keep/a"]


def test_changes_inside_a_submodule_are_refused(box, tmp_path):
    inner = Sandbox(tmp_path / "inner")
    inner.commit("i", code="1")
    box.commit("a")
    box.git("submodule", "--quiet", "add", str(inner.root), "lib")
    box.commit("module")
    assert changes(box.root) == ()
    (box.root / "lib/code").write_text("2")
    refused(lambda: repo(box).working_tree(), "submodule lib", "commit them inside lib")
    refused(lambda: repo(box).resolve_range("HEAD~1.."), "uncommitted changes: lib")
    (box.root / "lib/code").write_text("1")
    (box.root / "lib/new").write_text("in no commit, of no repository")
    assert repo(box).resolve_range("HEAD~1..")[1] == repo(box).resolve("HEAD")
    assert untracked_paths(box.root) == ("lib",)
    refused(lambda: repo(box).working_tree(), "submodule lib", "commit them inside lib")


def test_an_untracked_repository_without_commits_is_an_error_not_a_traceback(forked):
    box, _ = forked
    Sandbox(box.root / "nested")
    (box.root / "nested/f").write_text("x")
    refused(lambda: repo(box).working_tree(), "git add failed")
