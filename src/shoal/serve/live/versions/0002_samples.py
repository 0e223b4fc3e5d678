"""A table of what gateways measured over time."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "service_sample",
        sa.Column("subject", KEY, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("joined", sa.Integer(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "at", name=op.f("pk_service_sample")),
    )
