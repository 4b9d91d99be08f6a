"""Trace files that the user names: what is no file, or may not be looked at."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.errors import UsageError
from perfci.pipeline.files import expand

TRACE = Path(__file__).parents[1] / "traces" / "h200_gpt_item_each_step.sqlite.gz"


def test_names_that_are_no_files() -> None:
    for text in ("x" * 5000, "nothing-*.sqlite", "nothing.json"):
        with pytest.raises(UsageError, match="no such file"):
            expand([text])


def test_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    trace = shutil.copy(TRACE, locked)
    command = [sys.executable, "-m", "perfci", "extract", str(trace)]
    if os.getuid() == 0:  # permissions do not bind root, unless it gives that up
        bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if not shutil.which("setpriv") or subprocess.run([*bound, "true"], check=False).returncode:
            pytest.skip("permissions do not bind root, and its capabilities cannot be taken away here")
        command = [*bound, *command]
    locked.chmod(0)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    finally:
        locked.chmod(0o755)
    assert done.returncode == 5, done.stderr
    assert f"{trace} cannot be read: Permission denied" in done.stderr
