"""The ``prepare:`` command: run once, cached when it succeeded, exact when reused, clear when it fails."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from git_sandbox import Sandbox

from perfci.capture.prepare import KEPT_RESULTS, prepare
from perfci.capture.repository import Repository
from perfci.capture.worktree import private_directory, worktrees
from perfci.errors import MeasurementError

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def repo(tmp_path):
    box = Sandbox(tmp_path / "repo")
    box.commit("one", **{"source": "1", "obsolete": "x", "sub/dir/f": "y"})
    box.commit("two", source="2")
    return Repository.discover(box.root)


def shell(script):
    return ("sh", "-c", script)


def run(repo, command, *, revision="HEAD", look=None, **options):
    with worktrees(repo, [repo.resolve(revision)]) as (side,):
        options = {"environment": ENV, **options}
        done = prepare(side, command, private=private_directory(repo), **options)
        return done, look(side.path) if look else None


def test_the_second_time_the_result_is_put_back_exactly(repo, tmp_path):
    build = shell(
        "echo ran >> $COUNT; echo built > lib.so; chmod 755 lib.so; touch -d 2001-02-03 lib.so; mkdir -p build/empty; "
        "ln -s lib.so link; rm obsolete; echo patched > source; git submodule status; echo said"
    )
    env = {**ENV, "COUNT": str(tmp_path / "count")}

    def look(path):
        found = {}
        for p in sorted(path.rglob("*")):
            if p.name != ".git":
                kind = str(p.readlink()) if p.is_symlink() else p.read_text() if p.is_file() else "/"
                found[str(p.relative_to(path))] = (kind, p.lstat().st_mode)
        return found, (path / "lib.so").stat().st_mtime_ns, (path / ".git").read_text()

    first, seen = run(repo, build, environment=env, look=look)
    again, seen_again = run(repo, build, environment=env, look=look)
    assert (first.reused, again.reused) == (False, True)
    assert (tmp_path / "count").read_text() == "ran\n"
    assert seen == seen_again
    assert "obsolete" not in seen[0]
    assert seen[0]["build/empty"][0] == "/"
    assert first.log.read_text().endswith("said\n")
    assert again.log == first.log


def test_what_the_workload_writes_later_is_not_cached(repo):
    def pollute(path):
        (path / "checkpoint").write_text("resume from here")
        (path / "made").write_text("overwritten")

    command = shell("echo made > made")
    run(repo, command, look=pollute)
    done, listed = run(repo, command, look=lambda path: ((path / "made").read_text(), (path / "checkpoint").exists()))
    assert done.reused
    assert listed == ("made\n", False)


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "HEAD~1"},
        {"command": shell("echo x > made; true")},
        {"environment": {**ENV, "CUDA_HOME": "/usr/local/cuda-13"}},
        {"directory": "sub"},
    ],
)
def test_anything_that_may_change_the_build_builds_anew(repo, change):
    options = {"command": shell("echo x > made"), **change}
    run(repo, shell("echo x > made"))
    assert not run(repo, **options)[0].reused
    assert run(repo, **options)[0].reused


def test_a_new_version_of_a_package_builds_anew(repo, shared_environment):
    folder, env = shared_environment
    (folder / "torch-2.12.dist-info").mkdir()
    build = shell("echo x > made")
    assert not run(repo, build, environment=env)[0].reused
    assert run(repo, build, environment=env)[0].reused
    (folder / "torch-2.12.dist-info").rename(folder / "torch-2.13.dist-info")
    assert not run(repo, build, environment=env)[0].reused


def test_both_sides_of_a_self_comparison_are_prepared_apart(repo):
    head = repo.resolve("HEAD")
    for expected in (False, True):
        with worktrees(repo, [head, head]) as sides:
            for side in sides:
                done = prepare(side, shell("pwd > where"), private=private_directory(repo), environment=ENV)
                assert done.reused is expected
                assert (side.path / "where").read_text() == f"{side.path}\n"


def test_a_failure_names_the_log_shows_its_end_and_is_not_cached(repo, tmp_path):
    flag = tmp_path / "flag"
    command = shell(f"seq 1 100; echo to stderr >&2; test -e {flag}")
    with pytest.raises(MeasurementError) as caught:
        run(repo, command)
    message = str(caught.value)
    assert "failed with exit code 1" in message
    assert "    100\n    to stderr" in message
    assert "    50\n" not in message
    log = message.rsplit("read ", 1)[1]
    assert Path(log).read_text().startswith("1\n2\n")
    flag.touch()
    assert not run(repo, command)[0].reused
    assert run(repo, command)[0].reused


def test_a_program_that_is_missing_or_killed(repo):
    with pytest.raises(MeasurementError, match=r"cannot start: No such file.*no-such-program"):
        run(repo, ("no-such-program", "x"))
    with pytest.raises(MeasurementError, match="cannot start"):
        run(repo, ("true",), directory="absent")
    with pytest.raises(MeasurementError, match="failed with SIGKILL"):
        run(repo, shell("kill -9 $$"))


def alive(marker):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return marker in listed


def test_a_timeout_ends_the_command_and_its_children(repo):
    started = time.monotonic()
    with pytest.raises(MeasurementError, match=r"did not end within 0\.3 s"):
        run(repo, shell("sleep 98.7651 & sleep 98.7651"), timeout_s=0.3)
    assert time.monotonic() - started < 10
    assert not alive("sleep 98.7651")


def test_children_left_behind_do_not_disturb_the_measurement(repo):
    assert not run(repo, shell("sleep 98.7652 >/dev/null 2>&1 &"))[0].reused
    assert not alive("sleep 98.7652")


def test_only_the_given_environment_is_visible(repo, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    done, _ = run(repo, ("env",))
    assert "secret" not in done.log.read_text()


def test_the_cache_is_bounded_and_keeps_what_was_used_last(repo):
    for number in range(KEPT_RESULTS):
        run(repo, shell(f"echo {number} > made"))
        time.sleep(0.01)
    assert run(repo, shell("echo 0 > made"))[0].reused  # used again: now the newest
    run(repo, shell("echo new > made"))
    assert len(list((private_directory(repo) / "prepared").iterdir())) == KEPT_RESULTS
    assert run(repo, shell("echo 0 > made"))[0].reused
    assert not run(repo, shell("echo 1 > made"))[0].reused


def test_a_result_that_cannot_be_stored_is_still_used(repo):
    done, made = run(repo, shell("mkfifo pipe; echo x > made"), look=lambda path: (path / "made").read_text())
    assert made == "x\n"
    assert not done.reused
    assert not run(repo, shell("mkfifo pipe; echo x > made"))[0].reused
    assert not [p for p in (private_directory(repo) / "prepared").iterdir() if p.name.startswith("unfinished")]


@pytest.fixture
def shared_environment(tmp_path):
    """The part of a virtual environment that an installer writes to."""
    folder = tmp_path / "venv/lib/python3.11/site-packages"
    folder.mkdir(parents=True)
    return folder, {**ENV, "VIRTUAL_ENV": str(tmp_path / "venv"), "SITE": str(folder)}


@pytest.mark.parametrize(
    "install",
    [
        'mkdir -p $SITE/a-1.dist-info; echo "{\\"url\\": \\"file://$PWD\\"}" > $SITE/a-1.dist-info/direct_url.json',
        "echo $PWD/src > $SITE/__editable__.a-1.pth",
        "echo $PWD > $SITE/a.egg-link",
    ],
)
def test_installing_the_checkout_into_the_shared_environment_is_refused(repo, shared_environment, install):
    _, env = shared_environment
    with pytest.raises(MeasurementError, match="both sides share") as caught:
        run(repo, shell(install), environment=env)
    assert "pip install --target" in str(caught.value)


def test_other_changes_of_the_shared_environment_are_noted_and_not_cached(repo, shared_environment):
    folder, env = shared_environment
    (folder / "numpy-1.dist-info").mkdir()
    command = shell("mv $SITE/numpy-* $SITE/numpy-$(date +%N).dist-info")
    for _ in range(2):
        done, _seen = run(repo, command, environment=env)
        assert [note.code for note in done.notes] == ["prepare-changed-environment"]
        assert not done.reused


BACKEND = """
import zipfile
def _wheel(folder, pth):
    name = "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n")
        wheel.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("thing-1.dist-info/RECORD", "")
        wheel.writestr("thing.pth" if pth else "thing.py", pth)
    return name
def build_editable(folder, config_settings=None, metadata_directory=None):
    import os
    return _wheel(folder, os.getcwd())
def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, "")
"""


@pytest.mark.parametrize("editable", [("-e",), ()])
def test_a_real_pip_install_of_the_checkout_is_refused(tmp_path, editable):
    box = Sandbox(tmp_path / "my repo")
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    box.commit("a", **{"pyproject.toml": project, "backend.py": BACKEND})
    repo = Repository.discover(box.root)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    env = {**ENV, "VIRTUAL_ENV": str(tmp_path / "venv")}
    pip = (sys.executable, "-m", "pip", "--python", str(tmp_path / "venv/bin/python"), "install", "--no-index")
    with pytest.raises(MeasurementError, match="both sides share"):
        run(repo, (*pip, *editable, "."), environment=env)
    if not editable:
        assert not run(repo, (*pip, "--target", ".deps", "."), environment=env)[0].notes
