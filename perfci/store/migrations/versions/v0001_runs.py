"""Runs, their environments and their samples."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ROW = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("key_hash", sa.String(64), nullable=False),
        sa.Column("entries", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environments"),
    )
    op.create_index("ix_environments_key_hash", "environments", ["key_hash"])
    op.create_table(
        "runs",
        sa.Column("row", _ROW, autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("commit_id", sa.Text(), nullable=True),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("environment_id", sa.String(64), nullable=False),
        sa.Column("key_hash", sa.String(64), nullable=False),
        sa.Column("started_at_us", sa.BigInteger(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("spoiled", sa.Boolean(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("row", name="pk_runs"),
        sa.UniqueConstraint("run_id", name="uq_runs_run_id"),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name="fk_runs_environment_id"),
    )
    op.create_index("ix_runs_environment_id", "runs", ["environment_id"])
    op.create_index("ix_runs_of_revision", "runs", ["workload", "revision", "started_at_us"])
    op.create_index("ix_runs_of_commit", "runs", ["workload", "commit_id"])
    op.create_table(
        "series",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("name_hash", sa.String(64), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.UniqueConstraint("name_hash", name="uq_series_name_hash"),
    )
    op.create_table(
        "samples",
        sa.Column("series_id", _ROW, nullable=False),
        sa.Column("run_row", _ROW, nullable=False),
        sa.Column("sample", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", "run_row", name="pk_samples"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_samples_series_id"),
        sa.ForeignKeyConstraint(["run_row"], ["runs.row"], name="fk_samples_run_row", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_samples_run_row", "samples", ["run_row"])
