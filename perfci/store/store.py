"""Everything perfci keeps: runs, their history, comparisons, accepted regressions, noise. All of perfci's own SQL."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase

from perfci.errors import BackendError
from perfci.model import codec
from perfci.model.comparison import Comparison
from perfci.model.environment import Environment
from perfci.model.history import Acknowledgement, HistoryPoint, LaunchSample, NoiseLevel, StoredComparison
from perfci.model.run import Run
from perfci.store.engine import WRITES, Database, connect, explained
from perfci.store.packing import (
    MeasuredNoise,
    PackedRun,
    SeriesName,
    acknowledgement,
    acknowledgement_values,
    from_us,
    history_point,
    name_hash,
    noise_level,
    noise_values,
    pack,
    run_values,
    to_us,
    unpack,
)
from perfci.store.queries import environments_of, noise_of, points_of, samples_of_launches, series_of
from perfci.store.schema import prepare
from perfci.store.tables import (
    AcknowledgementRow,
    ComparisonRow,
    EnvironmentRow,
    NoiseRow,
    RunRow,
    SampleRow,
    SeriesRow,
)

_CHUNK = 500
"""Values in one IN list."""
NOISE_RUNS = 200
"""Newest launches that tell the noise of a workload: weeks of a busy branch, and a bound on the time to read them."""
T = TypeVar("T")


def open_store(url: str, *, busy_timeout_s: float = 30.0) -> "Store":
    """Open a database, create its tables when it is empty, migrate it when it is older (after a copy, for SQLite).

    ``url`` is an SQLAlchemy URL: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``sqlite://`` (memory) or
    ``postgresql://…``. Writers wait up to ``busy_timeout_s`` for each other. A SQLite file that cannot be written is
    opened for reading. Close the store, or use it as a context manager.

    UsageError: no such kind of database, missing driver, a database of another program. BackendError: unreachable,
    locked, damaged, newer than this program.
    """
    database = connect(url, busy_timeout_s=busy_timeout_s)
    try:
        with explained(database):
            prepare(database)
    except BaseException:
        database.engine.dispose()
        raise
    return Store(database)


class Store:
    """An open database. Every method is one transaction, and raises BackendError when the database fails; what a
    writing method was given is stored whole or not at all. Returned values are the model's and outlive the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give all connections back."""
        with explained(self._database):
            self._database.engine.dispose()

    @property
    def name(self) -> str:
        """The database's URL without secrets."""
        return self._database.name

    @property
    def read_only(self) -> bool:
        """True when the file cannot be written: reading works, writing raises BackendError."""
        return self._database.read_only

    def require_writable(self) -> None:
        """BackendError when nothing can be stored: to be known before minutes of measuring, not after."""
        if self.read_only:
            raise BackendError(
                f"the database {self.name} is read-only, and what is measured must be stored",
                todo="make the file and its folder writable, or name another database with --db",
            )

    # Runs

    def add_runs(self, runs: Iterable[Run]) -> int:
        """Store runs; the number that were not there yet. The same launch again (``codec.run_id``) is left as it is.

        MeasurementError for a run that cannot be stored: a number outside 64 bits, text with NUL or half a character
        pair, a name that is too long, a run-level metric with several values.
        """
        packed = sorted({p.run_id: p for p in map(pack, runs)}.values(), key=lambda p: p.run_id)
        if not packed:
            return 0
        with self._writing() as connection:
            present = {
                run_id
                for part in _parts([p.run_id for p in packed])
                for run_id in connection.execute(select(RunRow.run_id).where(RunRow.run_id.in_(part))).scalars()
            }
            new = [p for p in packed if p.run_id not in present]
            self._add_environments(connection, new)
            series = self._series_ids(connection, {key: name for p in new for key, name, _ in p.samples})
            return sum(self._add_run(connection, p, series) for p in new)

    def runs(
        self,
        workload: str,
        revision: str,
        *,
        key: tuple[tuple[str, str], ...] | None = None,
        limit: int | None = None,
    ) -> tuple[Run, ...]:
        """All runs of a workload at a revision (``Revision.identity``), spoiled ones too, in order of their start.

        ``key`` keeps runs of one comparability key, ``limit`` the newest. None there: an empty tuple.
        """
        query = select(RunRow.document).where(RunRow.workload == workload, RunRow.revision == revision)
        if key is not None:
            query = query.where(RunRow.key_hash == codec.key_hash(Environment(entries=key)))
        query = query.order_by(RunRow.started_at_us.desc(), RunRow.position.desc(), RunRow.run_id.desc()).limit(limit)
        documents = self._column(query)
        return tuple(codec.run_from_document(unpack(document)) for document in reversed(documents))

    def run(self, run_id: str) -> Run | None:
        """The run with this content address (as in HistoryPoint), or None."""
        documents = self._column(select(RunRow.document).where(RunRow.run_id == run_id))
        return codec.run_from_document(unpack(documents[0])) if documents else None

    def workloads(self) -> tuple[str, ...]:
        """Names of all workloads that have a run, sorted."""
        return tuple(sorted(self._column(select(RunRow.workload).distinct())))

    def labels(self) -> tuple[str, ...]:
        """Labels of imported runs that have no git commit, sorted."""
        return tuple(sorted(self._column(select(RunRow.label).where(RunRow.commit_id.is_(None)).distinct())))

    def measured_commits(self, workload: str, *, key_hash: str | None = None) -> frozenset[str]:
        """Commits of which a clean, unspoiled run of the workload is stored: possible stand-in baselines."""
        query = select(RunRow.commit_id).where(
            RunRow.workload == workload, RunRow.commit_id.is_not(None), ~RunRow.dirty, ~RunRow.spoiled
        )
        if key_hash is not None:
            query = query.where(RunRow.key_hash == key_hash)
        return frozenset(self._column(query.distinct()))

    # History

    def history(
        self, workload: str, phase: str, metric: str, *, key_hash: str | None = None, since: datetime | None = None
    ) -> tuple[HistoryPoint, ...]:
        """One point per unspoiled run of a clean revision or an import, in order of start (ties: position, run id).

        Time of measuring is not the order of commits: git knows that. ``since`` is inclusive. Never measured: empty.
        """
        query = points_of(workload, phase, metric, key_hash=key_hash, since=since)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return tuple(history_point(row) for row in rows)

    def series(self, workload: str) -> tuple[tuple[str, str], ...]:
        """All (phase, metric) of a workload that history knows, sorted."""
        with self._reading() as connection:
            return tuple(sorted((row.phase, row.metric) for row in connection.execute(series_of(workload))))

    def environments(self, workload: str) -> tuple[Environment, ...]:
        """The environments in which the workload ran: one (the newest) for each comparability key, newest first."""
        found = self._column(environments_of(workload))
        return tuple(Environment(entries=tuple((n, v) for n, v in json.loads(text))) for text in found)

    # Comparisons

    def add_comparison(self, comparison: Comparison, *, stored_at: datetime | None = None) -> str:
        """Store a comparison; its content address. An equal one that is there already keeps its date."""
        document = codec.canonical_json(codec.comparison_to_document(comparison))
        comparison_id = hashlib.sha256(document).hexdigest()
        row = {
            "comparison_id": comparison_id,
            "stored_at_us": to_us(stored_at or datetime.now(UTC)),
            "baseline": comparison.baseline.identity,
            "candidate": comparison.candidate.identity,
            "verdict": comparison.verdict.value,
            "document": zlib.compress(document),
        }
        with self._writing() as connection:
            _insert_new(connection, ComparisonRow, [row])
        return comparison_id

    def comparisons(
        self, *, candidate: str | None = None, baseline: str | None = None, limit: int | None = None
    ) -> tuple[StoredComparison, ...]:
        """Stored comparisons, newest first; ``candidate`` and ``baseline`` are revision identities."""
        query = select(ComparisonRow.comparison_id, ComparisonRow.stored_at_us, ComparisonRow.document)
        if candidate is not None:
            query = query.where(ComparisonRow.candidate == candidate)
        if baseline is not None:
            query = query.where(ComparisonRow.baseline == baseline)
        query = query.order_by(ComparisonRow.stored_at_us.desc(), ComparisonRow.row.desc()).limit(limit)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return tuple(
            StoredComparison(
                comparison_id=row.comparison_id,
                stored_at=from_us(row.stored_at_us),
                comparison=codec.comparison_from_document(unpack(row.document)),
            )
            for row in rows
        )

    # Accepted regressions

    def acknowledge(self, accepted: Acknowledgement) -> bool:
        """Store that regressions were accepted; False when this source did so before (the first one stays)."""
        row = acknowledgement_values(accepted)
        with self._writing() as connection:
            return _insert_one(connection, AcknowledgementRow, AcknowledgementRow.row, row) is not None

    def acknowledgements(
        self, *, repository: str | None = None, head_sha: str | None = None, pull_request: int | None = None
    ) -> tuple[Acknowledgement, ...]:
        """Accepted regressions in order of acceptance."""
        query = select(AcknowledgementRow.__table__)
        if repository is not None:
            query = query.where(AcknowledgementRow.repository == repository)
        if head_sha is not None:
            query = query.where(AcknowledgementRow.head_sha == head_sha)
        if pull_request is not None:
            query = query.where(AcknowledgementRow.pull_request == pull_request)
        query = query.order_by(AcknowledgementRow.accepted_at_us, AcknowledgementRow.row)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return tuple(acknowledgement(row) for row in rows)

    # Noise

    def set_noise_floors(
        self,
        workload: str,
        environment: Environment,
        levels: Iterable[MeasuredNoise],
        *,
        calibrated_at: datetime | None = None,
    ) -> None:
        """Replace all noise levels of a workload in one comparability key by those of a new calibration."""
        key = codec.key_hash(environment)
        at = to_us(calibrated_at or datetime.now(UTC))
        by_name = {(workload, level.phase, level.metric): level for level in levels}
        with self._writing() as connection:
            series = self._series_ids(connection, {name_hash(name): name for name in by_name})
            ours = select(SeriesRow.id).where(SeriesRow.workload == workload)
            connection.execute(delete(NoiseRow).where(NoiseRow.key_hash == key, NoiseRow.series_id.in_(ours)))
            rows = [
                {"series_id": series[name_hash(name)], "key_hash": key, **noise_values(level, calibrated_at_us=at)}
                for name, level in by_name.items()
            ]
            _insert_new(connection, NoiseRow, rows)

    def noise_levels(self, workload: str, *, environment: Environment | None = None) -> tuple[NoiseLevel, ...]:
        """Calibrated noise of a workload in ``environment``'s comparability key, or in all; by phase and metric."""
        key_hash = None if environment is None else codec.key_hash(environment)
        query = noise_of(workload, key_hash=key_hash)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return tuple(sorted(map(noise_level, rows), key=lambda level: (level.phase, level.metric, level.upper)))

    def launch_samples(
        self, workload: str, *, environment: Environment, before: datetime | None = None, limit: int = NOISE_RUNS
    ) -> tuple[LaunchSample, ...]:
        """Samples of the newest unspoiled launches (at most ``limit``) in ``environment``'s comparability key that
        started ``before`` a moment: what history tells of noise."""
        key_hash = codec.key_hash(environment)
        query = samples_of_launches(workload, key_hash=key_hash, before=before, limit=limit)
        with self._reading() as connection:
            return tuple(LaunchSample(**row) for row in connection.execute(query).mappings())

    # Transactions

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(self._database), self._database.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._database.read_only:
            raise BackendError(
                f"the database {self.name} is read-only", todo="make it writable, or name another one with --db"
            )
        with (
            explained(self._database),
            self._database.engine.connect().execution_options(**{WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    def _column(self, query: Any) -> Sequence[Any]:
        with self._reading() as connection:
            return connection.execute(query).scalars().all()

    # Writing runs

    def _add_environments(self, connection: Connection, packed: Iterable[PackedRun]) -> None:
        rows = {
            p.environment_id: {
                "id": p.environment_id,
                "key_hash": p.key_hash,
                "entries": p.environment_json,
            }
            for p in packed
        }
        _insert_new(connection, EnvironmentRow, [rows[key] for key in sorted(rows)])

    def _series_ids(self, connection: Connection, names: dict[str, SeriesName]) -> dict[str, int]:
        """Row numbers of series by the hash of their names, made where they are new."""

        def known() -> dict[str, int]:
            found: dict[str, int] = {}
            for part in _parts(sorted(names)):
                query = select(SeriesRow.name_hash, SeriesRow.id).where(SeriesRow.name_hash.in_(part))
                found.update((row.name_hash, row.id) for row in connection.execute(query))
            return found

        ids = known()
        missing = sorted(names.keys() - ids.keys())
        if not missing:
            return ids
        _insert_new(
            connection,
            SeriesRow,
            [
                {"name_hash": key, "workload": names[key][0], "phase": names[key][1], "metric": names[key][2]}
                for key in missing
            ],
        )
        return known()

    def _add_run(self, connection: Connection, packed: PackedRun, series: dict[str, int]) -> int:
        number = _insert_one(connection, RunRow, RunRow.row, run_values(packed))
        if number is None:
            return 0
        samples = [{"series_id": series[key], "run_row": number, "sample": sample} for key, _, sample in packed.samples]
        _insert_new(connection, SampleRow, samples)
        return 1


def _parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _insert_new(connection: Connection, table: type[DeclarativeBase], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows that break no unique constraint; keep those that are there."""
    if rows:
        connection.execute(_insert(connection, table), list(rows))


def _insert_one(connection: Connection, table: type[DeclarativeBase], number: Any, row: dict[str, Any]) -> int | None:
    """Insert a row; its ``number`` column, or None when one like it is there."""
    found: int | None = connection.execute(_insert(connection, table).returning(number), row).scalar_one_or_none()
    return found


def _insert(connection: Connection, table: type[DeclarativeBase]) -> Any:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()
