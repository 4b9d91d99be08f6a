"""The longer SELECTs: what history, noise and environments are read by. Pure: nothing here touches a database."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select

from perfci.store.packing import name_hash, to_us
from perfci.store.tables import EnvironmentRow, NoiseRow, RunRow, SampleRow, SeriesRow

Query = Select[*tuple[Any, ...]]


def points_of(workload: str, phase: str, metric: str, *, key_hash: str | None, since: datetime | None) -> Query:
    """Samples of one series with their runs, in order of start: columns of ``packing.history_point``."""
    query = (
        select(
            RunRow.run_id,
            RunRow.revision,
            RunRow.label,
            RunRow.commit_id,
            RunRow.started_at_us,
            RunRow.key_hash,
            SampleRow.sample,
        )
        .join(SampleRow, SampleRow.run_row == RunRow.row)
        .join(SeriesRow, SeriesRow.id == SampleRow.series_id)
        .where(SeriesRow.name_hash == name_hash((workload, phase, metric)), ~RunRow.spoiled, ~RunRow.dirty)
        .order_by(RunRow.started_at_us, RunRow.position, RunRow.run_id)
    )
    if key_hash is not None:
        query = query.where(RunRow.key_hash == key_hash)
    if since is not None:
        query = query.where(RunRow.started_at_us >= to_us(since))
    return query


def series_of(workload: str) -> Query:
    """(phase, metric) of the series that have a sample."""
    return (
        select(SeriesRow.phase, SeriesRow.metric)
        .where(SeriesRow.workload == workload)
        .where(select(SampleRow.run_row).where(SampleRow.series_id == SeriesRow.id).exists())
    )


def environments_of(workload: str) -> Query:
    """Entries of one environment for each comparability key of a workload's runs, newest first."""
    newest = (
        select(RunRow.key_hash, func.max(RunRow.row).label("row"))
        .where(RunRow.workload == workload)
        .group_by(RunRow.key_hash)
        .subquery()
    )
    return (
        select(EnvironmentRow.entries)
        .join(RunRow, RunRow.environment_id == EnvironmentRow.id)
        .join(newest, newest.c.row == RunRow.row)
        .order_by(RunRow.row.desc())
    )


def samples_of_launches(workload: str, *, key_hash: str, before: datetime | None, limit: int) -> Query:
    """All samples of the newest unspoiled runs in one comparability key: columns of ``LaunchSample``."""
    newest = select(RunRow.row, RunRow.revision, RunRow.schedule, RunRow.started_at_us).where(
        RunRow.workload == workload, RunRow.key_hash == key_hash, ~RunRow.spoiled
    )
    if before is not None:
        newest = newest.where(RunRow.started_at_us < to_us(before))
    runs = newest.order_by(RunRow.started_at_us.desc(), RunRow.row.desc()).limit(limit).subquery()
    return (
        select(SeriesRow.phase, SeriesRow.metric, runs.c.revision, runs.c.schedule, SampleRow.sample)
        .join(SampleRow, SampleRow.run_row == runs.c.row)
        .join(SeriesRow, SeriesRow.id == SampleRow.series_id)
        .order_by(SeriesRow.id, runs.c.started_at_us, runs.c.row)
    )


def noise_of(workload: str, *, key_hash: str | None) -> Query:
    """Calibrated noise levels with their series: columns of ``packing.noise_level``."""
    query = (
        select(SeriesRow.phase, SeriesRow.metric, *NoiseRow.__table__.columns)
        .join(NoiseRow, NoiseRow.series_id == SeriesRow.id)
        .where(SeriesRow.workload == workload)
    )
    return query if key_hash is None else query.where(NoiseRow.key_hash == key_hash)
