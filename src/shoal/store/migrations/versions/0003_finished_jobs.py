"""Jobs by tenant and state are indexed once they are over, instead of anew at each of their steps."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UNFINISHED = sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')")
FINISHED = sa.text("state IN ('SUCCEEDED', 'FAILED', 'CANCELLED')")


def upgrade() -> None:
    op.drop_index("ix_job_tenant_state", "job")
    op.create_index("ix_job_finished", "job", ["tenant", "state"], sqlite_where=FINISHED, postgresql_where=FINISHED)
    op.create_index(
        "ix_job_tenant_unfinished", "job", ["tenant", "submitted_at", "id"],
        sqlite_where=UNFINISHED, postgresql_where=UNFINISHED,
    )  # fmt: skip
