"""From values to what lies in the tables, and back: documents, samples, hashes, times. No SQL."""

import hashlib
import json
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from perfci.errors import BackendError, MeasurementError
from perfci.model import codec
from perfci.model.history import Acknowledgement, HistoryPoint, NoiseLevel
from perfci.model.metrics import Statistic
from perfci.model.run import Run
from perfci.model.samples import sample_of

LONGEST_NAME = 500
"""Characters of a workload's name or a revision's label: what an index of PostgreSQL surely holds."""
LONGEST_PHASE = 20_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = 2**63

SeriesName = tuple[str, str, str]
"""(workload, phase, metric)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRun:
    """A run, ready to be written."""

    run: Run
    run_id: str
    environment_id: str
    environment_json: str
    key_hash: str
    document: bytes
    samples: tuple[tuple[str, SeriesName, float], ...]
    """(hash of the name, name, sample)."""


class MeasuredNoise(Protocol):
    """What ``Store.set_noise_floors`` takes: a ``NoiseLevel``, or what a calibration gives."""

    @property
    def phase(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def statistic(self) -> Statistic: ...
    @property
    def deviation(self) -> float: ...
    @property
    def upper(self) -> float: ...
    @property
    def launches(self) -> int: ...
    @property
    def session(self) -> float | None: ...


def pack(run: Run) -> PackedRun:
    """Everything that is stored of a run. MeasurementError when it cannot be stored, on any database."""

    def refuse(why: str) -> MeasurementError:
        return MeasurementError(f"a run of {run.workload[:80]!r} cannot be stored: {why}")

    names = (run.workload, run.revision.label, run.revision.identity)
    if any(len(name) > LONGEST_NAME for name in names):
        raise refuse(f"its workload or revision has a name of more than {LONGEST_NAME} characters")
    phases = [series.phase for series in run.series]
    if any("\x00" in text for text in (*names, run.launch.schedule, *phases)):
        raise refuse("a name holds a NUL character")
    if any(len(phase) > LONGEST_PHASE for phase in phases):
        raise refuse(f"a phase has a name of more than {LONGEST_PHASE} characters")
    if run.launch.position >= _INT64:
        raise refuse("its position is outside 64 bits")
    try:
        samples = []
        for series in run.series:
            name = (run.workload, series.phase, series.metric)
            samples.append((name_hash(name), name, sample_of(series).value))
    except (ValueError, OverflowError) as error:
        raise refuse(str(error)) from None
    environment = codec.canonical_json(run.environment.entries)
    return PackedRun(
        run=run,
        run_id=codec.run_id(run),
        environment_id=hashlib.sha256(environment).hexdigest(),
        environment_json=environment.decode("utf-8"),
        key_hash=codec.key_hash(run.environment),
        document=compressed(codec.run_to_document(run)),
        samples=tuple(samples),
    )


def run_values(packed: PackedRun) -> dict[str, Any]:
    """The columns of a run."""
    run = packed.run
    return {
        "run_id": packed.run_id,
        "workload": run.workload,
        "revision": run.revision.identity,
        "label": run.revision.label,
        "commit_id": run.revision.commit,
        "dirty": run.revision.dirty,
        "environment_id": packed.environment_id,
        "key_hash": packed.key_hash,
        "started_at_us": to_us(run.launch.started_at),
        "schedule": run.launch.schedule,
        "position": run.launch.position,
        "spoiled": run.spoiled,
        "document": packed.document,
    }


def history_point(row: Any) -> HistoryPoint:
    """The point in a row of runs joined with samples."""
    return HistoryPoint(
        run_id=row.run_id,
        revision=row.revision,
        label=row.label,
        commit=row.commit_id,
        started_at=from_us(row.started_at_us),
        key_hash=row.key_hash,
        sample=row.sample,
    )


def acknowledgement_values(accepted: Acknowledgement) -> dict[str, Any]:
    """The columns of an acknowledgement."""
    return {
        "repository": accepted.repository,
        "pull_request": accepted.pull_request,
        "head_sha": accepted.head_sha,
        "regressions": json.dumps(accepted.regressions),
        "reason": accepted.reason,
        "author": accepted.author,
        "source": accepted.source,
        "accepted_at_us": to_us(accepted.accepted_at),
    }


def acknowledgement(row: Any) -> Acknowledgement:
    """The acknowledgement in a row."""
    return Acknowledgement(
        repository=row.repository,
        head_sha=row.head_sha,
        regressions=tuple((workload, phase, metric) for workload, phase, metric in json.loads(row.regressions)),
        reason=row.reason,
        author=row.author,
        source=row.source,
        accepted_at=from_us(row.accepted_at_us),
        pull_request=row.pull_request,
    )


def noise_values(level: MeasuredNoise, *, calibrated_at_us: int) -> dict[str, Any]:
    """The columns of a noise level, without its series and key."""
    return {
        "statistic": level.statistic.value,
        "deviation": level.deviation,
        "upper": level.upper,
        "session": level.session,
        "launches": level.launches,
        "calibrated_at_us": calibrated_at_us,
    }


def noise_level(row: Any) -> NoiseLevel:
    """The noise level in a row of noise joined with series."""
    return NoiseLevel(
        phase=row.phase,
        metric=row.metric,
        statistic=Statistic(row.statistic),
        deviation=row.deviation,
        upper=row.upper,
        launches=row.launches,
        session=row.session,
    )


def compressed(document: codec.Document) -> bytes:
    """The canonical JSON of a document, deflated."""
    return zlib.compress(codec.canonical_json(document))


def unpack(data: bytes) -> codec.Document:
    """The document in a blob; BackendError when it is damaged."""
    try:
        result: codec.Document = json.loads(zlib.decompress(data))
    except (zlib.error, ValueError) as error:
        raise BackendError(
            f"the database holds a damaged document ({error})", todo="restore the database from a backup"
        ) from None
    return result


def name_hash(name: SeriesName) -> str:
    """64 hexadecimal digits for the name of a series."""
    return hashlib.sha256(json.dumps(name).encode("ascii")).hexdigest()


def to_us(moment: datetime) -> int:
    """Exact microseconds since the epoch."""
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def from_us(microseconds: int) -> datetime:
    """The moment in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)
