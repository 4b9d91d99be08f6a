"""The tables as SQLAlchemy sees them. Private to ``perfci.store``: rows never leave the layer.

A run is kept twice: as its whole document (``runs.document``, never changed) and as one number per series
(``samples``), which is all that history asks for. Times are integer microseconds since the epoch, because SQLite has no
type for them. Every change here needs a migration (docs/store.md); a test holds both equal.
"""

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names of constraints are declared, so that migrations can name them on every database."""

# SQLite counts rows by itself only in a column whose type is exactly INTEGER.
_RowNumber = BigInteger().with_variant(Integer(), "sqlite")
_HASH = String(64)


class Base(DeclarativeBase):
    """All tables."""

    metadata = MetaData(naming_convention=NAMING)


class EnvironmentRow(Base):
    """One environment table, shared by its runs. ``id`` is the hash of ``entries``."""

    __tablename__ = "environments"

    id: Mapped[str] = mapped_column(_HASH, primary_key=True)
    key_hash: Mapped[str] = mapped_column(_HASH, index=True)
    entries: Mapped[str] = mapped_column(Text)
    """JSON: list of (name, value)."""


class RunRow(Base):
    """One process launch. ``document`` is the compressed JSON of the run (``perfci.model.codec``)."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_of_revision", "workload", "revision", "started_at_us"),
        Index("ix_runs_of_commit", "workload", "commit_id"),
    )

    row: Mapped[int] = mapped_column(_RowNumber, primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(_HASH, unique=True)
    workload: Mapped[str] = mapped_column(Text)
    revision: Mapped[str] = mapped_column(Text)
    label: Mapped[str] = mapped_column(Text)
    commit_id: Mapped[str | None] = mapped_column(Text)
    dirty: Mapped[bool]
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"), index=True)
    key_hash: Mapped[str] = mapped_column(_HASH)
    started_at_us: Mapped[int] = mapped_column(BigInteger)
    schedule: Mapped[str] = mapped_column(Text)
    position: Mapped[int] = mapped_column(BigInteger)
    spoiled: Mapped[bool]
    document: Mapped[bytes] = mapped_column(LargeBinary)


class SeriesRow(Base):
    """The name of a series: what a sample is a sample of."""

    __tablename__ = "series"

    id: Mapped[int] = mapped_column(_RowNumber, primary_key=True, autoincrement=True)
    name_hash: Mapped[str] = mapped_column(_HASH, unique=True)
    """Hash of the three names: phases may be longer than an index of PostgreSQL can hold."""
    workload: Mapped[str] = mapped_column(Text)
    phase: Mapped[str] = mapped_column(Text)
    metric: Mapped[str] = mapped_column(Text)


class SampleRow(Base):
    """The one number of a run in a series."""

    __tablename__ = "samples"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  (SQLAlchemy's declaration; rows lie in order of series)

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    run_row: Mapped[int] = mapped_column(ForeignKey("runs.row", ondelete="CASCADE"), primary_key=True, index=True)
    sample: Mapped[float] = mapped_column(Float)


class ComparisonRow(Base):
    """One judged comparison. ``document`` is the compressed JSON of the comparison."""

    __tablename__ = "comparisons"
    __table_args__ = (Index("ix_comparisons_of_candidate", "candidate", "stored_at_us"),)

    row: Mapped[int] = mapped_column(_RowNumber, primary_key=True, autoincrement=True)
    comparison_id: Mapped[str] = mapped_column(_HASH, unique=True)
    stored_at_us: Mapped[int] = mapped_column(BigInteger, index=True)
    baseline: Mapped[str] = mapped_column(Text)
    candidate: Mapped[str] = mapped_column(Text)
    verdict: Mapped[str] = mapped_column(String(32))
    document: Mapped[bytes] = mapped_column(LargeBinary)


class AcknowledgementRow(Base):
    """An accepted regression, or several accepted in one breath."""

    __tablename__ = "acknowledgements"
    __table_args__ = (
        UniqueConstraint("repository", "source"),
        Index("ix_acknowledgements_of_head", "repository", "head_sha"),
    )

    row: Mapped[int] = mapped_column(_RowNumber, primary_key=True, autoincrement=True)
    repository: Mapped[str] = mapped_column(Text)
    pull_request: Mapped[int | None] = mapped_column(BigInteger)
    head_sha: Mapped[str] = mapped_column(Text)
    regressions: Mapped[str] = mapped_column(Text)
    """JSON: list of (workload, phase, metric)."""
    reason: Mapped[str] = mapped_column(Text)
    author: Mapped[str] = mapped_column(Text)
    source: Mapped[str] = mapped_column(Text)
    accepted_at_us: Mapped[int] = mapped_column(BigInteger)


class NoiseRow(Base):
    """The calibrated noise of one series in one environment key."""

    __tablename__ = "noise_levels"

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    key_hash: Mapped[str] = mapped_column(_HASH, primary_key=True)
    statistic: Mapped[str] = mapped_column(String(32))
    deviation: Mapped[float] = mapped_column(Float)
    upper: Mapped[float] = mapped_column(Float)
    session: Mapped[float | None] = mapped_column(Float)
    launches: Mapped[int]
    calibrated_at_us: Mapped[int] = mapped_column(BigInteger)
