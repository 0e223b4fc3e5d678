"""Bundles belong to tenants, and what is removed for its age is found by it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FINISHED = sa.text("state IN ('SUCCEEDED', 'FAILED', 'CANCELLED')")


def upgrade() -> None:
    op.create_table(
        "bundle",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("digest", KEY, nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("unpacked_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_bundle_tenant")),
        sa.PrimaryKeyConstraint("tenant", "digest", name=op.f("pk_bundle")),
    )
    op.create_table(
        "removed_events",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_removed_events_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_removed_events")),
    )
    op.create_index("ix_job_ended", "job", ["ended_at"], sqlite_where=FINISHED, postgresql_where=FINISHED)
