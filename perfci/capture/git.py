"""The ``git`` program: run it, without changing anything the user can see, and read its answer."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.errors import UsageError

_GIT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAnswer:
    """What a finished git process said. ``out`` is decoded so that any bytes survive a round trip (surrogates)."""

    code: int
    out: str
    err: str


def run_git(
    directory: Path, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
) -> GitAnswer:
    """Run git in ``directory`` and wait for it; a non-zero exit is an answer, not an error.

    UsageError when git is missing or does not answer within ten minutes (a hanging network file system).
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
            command,
            cwd=directory,
            env=_clean_environment() | dict(environment or {}),
            input=None if stdin is None else os.fsencode(stdin),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        if shutil.which("git") is not None:
            raise UsageError(f"the folder {directory} does not exist") from error
        raise UsageError(
            "the program git was not found",
            wanted="git 2.31 or newer on PATH",
            todo="install git (apt-get install git)",
        ) from error
    except NotADirectoryError as error:
        raise UsageError(f"{directory} is not a folder") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"git {arguments[0]} did not answer within {_GIT_TIMEOUT_S:.0f} s") from error
    return GitAnswer(code=done.returncode, out=os.fsdecode(done.stdout), err=os.fsdecode(done.stderr))


def _clean_environment() -> dict[str, str]:
    # Inside a git hook GIT_DIR and GIT_INDEX_FILE point to whatever git is doing at the moment.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(("GIT_CONFIG", "GIT_SSH", "GIT_ASKPASS", "GIT_EXEC_PATH"))
    }
    # No optional locks: `git status` would otherwise refresh, that is rewrite, the user's index.
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def git_output(directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What git printed, without the newlines at its end. UsageError with git's message when it exits non-zero."""
    answer = run_git(directory, *arguments, environment=environment)
    if answer.code != 0:
        raise git_failed(f"git {arguments[0]}", answer)
    return answer.out.rstrip("\n")


def git_failed(what: str, answer: GitAnswer) -> UsageError:
    """The error that says what git said."""
    said = " ".join(answer.err.split())[:500] or "no message"
    return UsageError(f"{what} failed with exit code {answer.code}: {said}")
