"""Revisions and ranges against real git repositories."""

import hashlib
import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from git_sandbox import Sandbox

from perfci.capture.git import Repository, run_git
from perfci.errors import UsageError
from perfci.model.run import Revision


@pytest.fixture
def box(tmp_path):
    return Sandbox(tmp_path / "repo")


@pytest.fixture
def forked(box):
    """main: a - b - c; topic forks at b: b - t."""
    commits = {"a": box.commit("a", f="1"), "b": box.commit("b", f="2")}
    box.git("branch", "topic")
    commits["c"] = box.commit("c", f="3")
    box.git("checkout", "-q", "topic")
    commits["t"] = box.commit("t", g="1")
    return box, commits


def repo(box):
    return Repository.discover(box.root)


def refused(call, *words):
    with pytest.raises(UsageError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


# --- finding the repository


def test_a_repository_is_found_from_a_folder_inside_it(box):
    box.commit("a")
    (box.root / "x/y").mkdir(parents=True)
    assert Repository.discover(box.root / "x/y").root == box.root


def test_odd_folder_names(tmp_path):
    box = Sandbox(tmp_path / "new\nline and space")
    box.commit("a")
    assert repo(box).root == box.root
    assert repo(box).resolve("HEAD").tree


def test_outside_of_a_repository(tmp_path):
    refused(lambda: Repository.discover(tmp_path), "not in a git repository", "do:")
    refused(lambda: Repository.discover(tmp_path / "nothing"), "does not exist")
    (tmp_path / "file").touch()
    refused(lambda: Repository.discover(tmp_path / "file"), "not a folder")


def test_a_bare_repository_is_refused(box, tmp_path):
    box.commit("a")
    box.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
    refused(lambda: Repository.discover(tmp_path / "bare"), "bare", "working tree")
    refused(lambda: Repository.discover(box.root / ".git"), "bare")


def test_git_missing(box, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(lambda: Repository.discover(box.root), "git was not found", "install git")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a repository to another user")
def test_a_repository_of_another_user(box, monkeypatch, tmp_path):
    box.commit("a")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for path in (box.root, box.root / ".git"):
        os.chown(path, 12345, 12345)
    refused(lambda: Repository.discover(box.root), "does not trust", "safe.directory")


def test_the_environment_of_a_git_hook_does_not_mislead(forked, monkeypatch, tmp_path):
    box, commits = forked
    other = Sandbox(tmp_path / "other")
    other.commit("elsewhere")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))
    assert repo(box).resolve("HEAD").commit == commits["t"]


# --- one revision


def test_names_of_a_commit(forked):
    box, commits = forked
    box.git("tag", "light", "main")
    box.git("tag", "-a", "-m", "x", "heavy", "main")
    box.git("branch", "feature/with-slash_ümlaut", "main")
    r = repo(box)
    for name in ("main", "light", "heavy", "refs/heads/main", "feature/with-slash_ümlaut", commits["c"][:7]):
        found = r.resolve(name)
        assert (found.label, found.commit, found.dirty) == (name, commits["c"], False)
        assert found.tree == box.git("rev-parse", "main^{tree}")
    assert r.resolve(commits["c"]).label == commits["c"][:12]
    assert r.resolve("HEAD~1").commit == commits["b"]
    assert r.resolve("@").commit == commits["t"]


def test_detached_head(forked):
    box, commits = forked
    box.git("checkout", "-q", "--detach", "main")
    assert repo(box).current_branch() is None
    assert repo(box).resolve("HEAD").commit == commits["c"]
    assert [r.commit for r in repo(box).resolve_range("topic..")] == [commits["t"], commits["c"]]


def test_no_commit_yet(box):
    refused(lambda: repo(box).resolve("HEAD"), "no commit yet", "commit first")
    refused(lambda: repo(box).resolve_range("main..x"), "no commit yet")


def test_unknown_revisions_say_what_to_do(forked):
    box, _ = forked
    refused(lambda: repo(box).resolve("nonsense"), "no revision 'nonsense'", "git branch --all")
    refused(lambda: repo(box).resolve("abcdef12"), "git fetch the branch")
    refused(lambda: repo(box).resolve("0" * 40), "no revision")


@pytest.mark.parametrize(
    "text", ["", " ", " main", "a\nb", "a\0b", "\x1b[31m", "--help", "-x", "--output=/tmp/x", "$(touch x)", "`id`",
             "main; touch x", "main:f", ":/a", "^main", "main^!", "HEAD:", "a b", "\udcff", "x" * 5000, "x" * 500_000]
)  # fmt: skip
def test_hostile_names_name_nothing_and_run_nothing(forked, text):
    box, commits = forked
    before = box.state()
    try:
        found = repo(box).resolve(text)
    except UsageError:
        pass
    else:  # git's own search syntax `:/text` is the only one that may answer
        assert text == ":/a"
        assert found.commit in commits.values()
    assert box.state() == before
    assert not (box.root / "x").exists()


def test_a_branch_that_starts_with_a_dash(forked):
    box, commits = forked
    box.git("update-ref", "refs/heads/-f", commits["a"])
    refused(lambda: repo(box).resolve("-f"), "dash", "refs/heads/-f")
    assert repo(box).resolve("refs/heads/-f").commit == commits["a"]


def test_one_name_for_a_branch_and_a_tag(forked):
    box, commits = forked
    box.git("tag", "same", commits["a"])
    box.git("update-ref", "refs/heads/same", commits["c"])
    refused(lambda: repo(box).resolve("same"), "ambiguous", "refs/heads/same", "refs/tags/same")
    box.git("update-ref", "refs/heads/same", commits["a"])
    assert repo(box).resolve("same").commit == commits["a"]


def test_a_branch_that_looks_like_a_hash(forked):
    box, commits = forked
    name = commits["a"][:8]
    box.git("update-ref", f"refs/heads/{name}", commits["c"])
    refused(lambda: repo(box).resolve(name), "ambiguous", f"refs/heads/{name}")


def test_a_short_hash_of_several_objects(box):
    box.commit("a")
    tree = box.git("rev-parse", "HEAD^{tree}")
    seen: dict[str, str] = {}
    for number in itertools.count():
        body = f"tree {tree}\nauthor a <a@x> 1 +0000\ncommitter a <a@x> 1 +0000\n\n{number}\n"
        prefix = hashlib.sha1(f"commit {len(body)}\0{body}".encode()).hexdigest()[:4]
        if prefix in seen:
            break
        seen[prefix] = body
    for text in (body, seen[prefix]):
        box.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text)
    refused(lambda: repo(box).resolve(prefix), "several objects", "more digits")


def test_renamed_default_branch(tmp_path):
    box = Sandbox(tmp_path / "repo", branch="trunk")
    commit = box.commit("a")
    box.git("clone", "-q", ".", str(tmp_path / "clone"))
    clone = Sandbox(tmp_path / "clone", branch="trunk")
    r = repo(clone)
    assert r.default_branch() == "origin/trunk"
    assert r.resolve("origin/trunk").commit == commit
    refused(lambda: r.resolve_range("main...HEAD"), "no revision 'main'", "default branch here is origin/trunk")


def test_a_branch_that_exists_only_at_the_remote(forked, tmp_path):
    box, _ = forked
    box.git("clone", "-q", ".", str(tmp_path / "clone"))
    clone = Sandbox(tmp_path / "clone")
    refused(lambda: repo(clone).resolve("main"), "origin/main")


# --- ranges


def test_ranges_as_git_has_them(forked):
    box, c = forked
    r = repo(box)

    def ends(text):
        baseline, candidate = r.resolve_range(text)
        return baseline.commit, candidate.commit

    assert ends("main..topic") == (c["c"], c["t"])
    assert ends("main...topic") == (c["b"], c["t"])
    assert ends("main..") == ends("main") == ends("main..HEAD") == (c["c"], c["t"])
    assert ends("main...") == (c["b"], c["t"])
    assert ends("..main") == (c["t"], c["c"])
    assert ends("...main") == (c["b"], c["c"])
    assert ends("..") == (c["t"], c["t"])
    assert ends("HEAD~1..HEAD") == (c["b"], c["t"])
    assert [x.label for x in r.resolve_range("main..topic")] == ["main", "topic"]
    assert r.resolve_range("main...topic")[0].label == c["b"][:12]


@pytest.mark.parametrize("text", ["a..b..c", "a...b...c", "a....b", "a...b..c", "main.....topic"])
def test_malformed_ranges(forked, text):
    refused(lambda: repo(forked[0]).resolve_range(text), "not a revision range", "A...B")


def test_merge_base_in_a_shallow_clone(forked, tmp_path):
    box, _ = forked
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", "--no-single-branch", f"file://{box.root}", str(tmp_path / "s")], check=True
    )
    clone = Repository.discover(tmp_path / "s")
    assert clone.shallow
    refused(
        lambda: clone.resolve_range("origin/main...origin/topic"), "shallow", "git fetch --unshallow", "fetch-depth: 0"
    )
    refused(lambda: clone.resolve("v1.0"), "git fetch --unshallow")
    subprocess.run(["git", "fetch", "-q", "--unshallow"], cwd=tmp_path / "s", check=True)
    assert clone.resolve_range("origin/main...origin/topic")[0].commit == forked[1]["b"]


def test_unrelated_histories(forked):
    box, _ = forked
    box.git("checkout", "-q", "--orphan", "island")
    box.commit("i")
    refused(lambda: repo(box).resolve_range("main...island"), "unrelated", "A..B")
    assert repo(box).resolve_range("main..island")


# --- dirty trees


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
    assert r.untracked_paths() == ("data/", "notes.txt")
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
    assert repo(box).dirty_paths() == ()
    assert repo(box).resolve_range("main..HEAD")


def test_touching_a_file_does_not_make_it_dirty(forked):
    box, _ = forked
    os.utime(box.root / "f", (1, 1))
    before = box.state()
    assert repo(box).dirty_paths() == ()
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
    assert repo(box).dirty_paths() == ()
    (box.root / "lib/code").write_text("2")
    refused(lambda: repo(box).working_tree(), "submodule lib", "commit them inside lib")
    refused(lambda: repo(box).resolve_range("HEAD~1.."), "uncommitted changes: lib")
    (box.root / "lib/code").write_text("1")
    (box.root / "lib/new").write_text("in no commit, of no repository")
    assert repo(box).resolve_range("HEAD~1..")[1] == repo(box).resolve("HEAD")
    assert repo(box).untracked_paths() == ("lib",)
    refused(lambda: repo(box).working_tree(), "submodule lib", "commit them inside lib")


def test_an_untracked_repository_without_commits_is_an_error_not_a_traceback(forked):
    box, _ = forked
    Sandbox(box.root / "nested")
    (box.root / "nested/f").write_text("x")
    refused(lambda: repo(box).working_tree(), "git add failed")


# --- ancestors


def test_nearest_measured_ancestor(forked):
    box, c = forked
    box.git("merge", "-q", "-m", "m", "main")
    r = repo(box)
    head = r.resolve("HEAD")

    def nearest(*measured, limit=10):
        found = r.nearest_ancestor(head, measured, limit=limit)
        return None if found is None else (found.commit, found.distance)

    assert nearest(head.commit, c["a"]) == (head.commit, 0)
    # b..HEAD = t, c and the merge; a..HEAD = b besides; c..HEAD = t and the merge
    assert nearest(c["a"], c["b"]) == (c["b"], 3)
    assert nearest(c["a"]) == (c["a"], 4)
    assert nearest(c["a"], c["b"], c["c"]) == (c["c"], 2)
    assert nearest(c["a"], limit=3) is None
    assert nearest(c["a"], limit=4) == (c["a"], 4)
    assert nearest() is None
    assert nearest("0" * 40) is None
    assert r.distance(c["c"], c["t"]) is None
    assert r.first_parents(head, limit=3) == (head.commit, c["t"], c["b"])


def test_an_import_has_no_ancestors(forked):
    refused(lambda: repo(forked[0]).nearest_ancestor(Revision(label="v1"), [], limit=3), "label of an import")


def test_changed_paths(forked):
    box, _ = forked
    r = repo(box)
    assert r.changed_paths(r.resolve("main"), r.resolve("topic")) == ("f", "g")
    assert r.changed_paths(r.resolve("main"), r.resolve("topic"), "g") == ("g",)
    assert r.changed_paths(r.resolve("main"), r.resolve("main")) == ()
    assert r.changed_paths(r.resolve("main"), r.resolve("topic"), ":(glob)*") == ()


def test_a_git_that_hangs_is_given_up(box, tmp_path, monkeypatch):
    fake = tmp_path / "bin/git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{Path(shutil.which('sleep')).parent}")
    monkeypatch.setattr("perfci.capture.git._GIT_TIMEOUT_S", 0.2)
    refused(lambda: run_git(box.root, "status"), "did not answer")
