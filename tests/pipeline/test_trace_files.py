"""Trace files that the user names: what is no file, or may not be looked at."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import kineto_builder as kineto
import pytest
from heard import Heard

from perfci.errors import UsageError
from perfci.pipeline.files import TraceOptions, expand, import_files
from perfci.store.store import open_store

TRACE = Path(__file__).parents[1] / "traces" / "h200_gpt_item_each_step.sqlite.gz"


def test_names_that_are_no_files() -> None:
    for text in ("x" * 5000, "nothing-*.sqlite", "nothing.json"):
        with pytest.raises(UsageError, match="no such file"):
            expand([text])


def test_a_copy_of_a_trace_that_tells_no_date_is_the_same_run(tmp_path: Path) -> None:
    """Its file's time is all there is; two launches that agree to the nanosecond would decide what one must not."""
    trace = kineto.training()
    del trace.facts["baseTimeNanoseconds"]
    first = trace.write(tmp_path / "a.json")
    copy = Path(shutil.copy(first, tmp_path / "b.json"))
    os.utime(copy, (1_700_000_000, 1_700_000_000))
    other = kineto.training()
    other.facts = trace.facts
    other.launch("more", 1250, 1305, 1310)
    other.write(tmp_path / "c.json")

    def imported(*names: str) -> int:
        with open_store(f"sqlite:///{tmp_path / 'perfci.db'}") as store:
            _, new = import_files(
                SimpleNamespace(repository=None),  # type: ignore[arg-type]
                store,
                [tmp_path / name for name in names],
                workload="gpt",
                revision="topic",
                one_run=False,
                options=TraceOptions(),
                progress=Heard(),
            )
        return new

    assert imported("a.json", "b.json") == 1
    assert imported("b.json") == 0
    assert imported("c.json") == 1


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
