"""Revisions and ranges against real git repositories."""

import hashlib
import itertools
import os
import subprocess

import pytest
from git_sandbox import Sandbox, refused, repo

from perfci.capture.repository import Repository
from perfci.errors import UsageError
from perfci.model.run import Revision

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


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a repository to another user")
def test_a_repository_of_another_user(box, monkeypatch, tmp_path):
    box.commit("a")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for path in (box.root, box.root / ".git"):
        os.chown(path, 12345, 12345)
    refused(lambda: Repository.discover(box.root), "does not trust", "safe.directory")


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
