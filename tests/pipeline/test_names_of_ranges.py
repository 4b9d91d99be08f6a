"""Whatever a program calls its ranges: the run is stored, bundled, and read back as it was."""

from pathlib import Path
from types import SimpleNamespace

from bundle_cases import identity
from heard import Heard
from nsys_builder import training
from situations import HOSTILE_NAMES

from perfci.bundle import read_bundle, write_bundle
from perfci.model.run import Run
from perfci.pipeline.files import TraceOptions, import_files
from perfci.store.store import Store, open_store

ODD_NAMES = ["", "\x00", "x" * 100_000, *(name.replace("\ud800", "") for name in HOSTILE_NAMES)]


def imported(store: Store, folder: Path, revision: str) -> Run:
    export = training()
    for step in range(3):
        for at, name in enumerate(ODD_NAMES):
            start = 1205 + 1000 * step + 10 * at
            export.mark(name, start, start + 9, registered=bool(at % 2))
    (run,), new = import_files(
        SimpleNamespace(repository=None),  # type: ignore[arg-type]
        store,
        [export.write(folder / f"{revision}.sqlite")],
        workload="gpt",
        revision=revision,
        one_run=False,
        options=TraceOptions(),
        progress=Heard(),
    )
    assert new == 1
    return run


def test_odd_names_travel_from_a_trace_through_the_database_into_a_bundle(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'perfci.db'}") as store:
        run = imported(store, tmp_path, "topic")
        assert store.runs("gpt", run.revision.identity) == (run,)
    named = {series.phase for series in run.series}
    assert len(named & set(HOSTILE_NAMES)) >= len(HOSTILE_NAMES) - 2, "only what no file can hold was changed"
    assert all(name and "\x00" not in name for name in named)
    assert read_bundle(write_bundle([run], identity(), tmp_path / "b.gz").path).runs == (run,)
