"""All tables of services."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
LIVE = sa.text("state <> 'STOPPED'")


def upgrade() -> None:
    op.create_table(
        "service",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("deployment", sa.BigInteger(), nullable=False),
        sa.Column("serves", sa.BigInteger(), nullable=False),
        sa.Column("launched", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("reason", sa.Text()),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service")),
    )
    op.create_index("ix_service_created", "service", ["created_at", "id"])
    op.create_index(
        "uq_service_live_name", "service", ["tenant", "name"], unique=True, sqlite_where=LIVE, postgresql_where=LIVE
    )
    op.create_table(
        "deployment",
        sa.Column("service_id", KEY, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name=op.f("fk_deployment_service_id")),
        sa.PrimaryKeyConstraint("service_id", "number", name=op.f("pk_deployment")),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_deployment_idempotency_key"),
    )
