"""What was decided: comparisons, accepted regressions, calibrated noise."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ROW = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "comparisons",
        sa.Column("row", _ROW, autoincrement=True, nullable=False),
        sa.Column("comparison_id", sa.String(64), nullable=False),
        sa.Column("stored_at_us", sa.BigInteger(), nullable=False),
        sa.Column("baseline", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(32), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("row", name="pk_comparisons"),
        sa.UniqueConstraint("comparison_id", name="uq_comparisons_comparison_id"),
    )
    op.create_index("ix_comparisons_stored_at_us", "comparisons", ["stored_at_us"])
    op.create_index("ix_comparisons_of_candidate", "comparisons", ["candidate", "stored_at_us"])
    op.create_table(
        "acknowledgements",
        sa.Column("row", _ROW, autoincrement=True, nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("pull_request", sa.BigInteger(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("regressions", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("accepted_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("row", name="pk_acknowledgements"),
        sa.UniqueConstraint("repository", "source", name="uq_acknowledgements_repository_source"),
    )
    op.create_index("ix_acknowledgements_of_head", "acknowledgements", ["repository", "head_sha"])
    op.create_table(
        "noise_levels",
        sa.Column("series_id", _ROW, nullable=False),
        sa.Column("key_hash", sa.String(64), nullable=False),
        sa.Column("statistic", sa.String(32), nullable=False),
        sa.Column("deviation", sa.Float(), nullable=False),
        sa.Column("upper", sa.Float(), nullable=False),
        sa.Column("session", sa.Float(), nullable=True),
        sa.Column("launches", sa.Integer(), nullable=False),
        sa.Column("calibrated_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", "key_hash", name="pk_noise_levels"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_noise_levels_series_id"),
    )
