"""All tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNFINISHED = sa.text("ended_at IS NULL")
FINISHED = sa.text("ended_at IS NOT NULL")
OWNED = sa.text("owner_id IS NOT NULL")
IN_ARRAY = sa.text("array_id IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "control_lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_control_lease_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_control_lease")),
    )
    op.create_table(
        "drained_node",
        sa.Column("name", KEY, nullable=False),
        sa.Column("because", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_drained_node")),
    )
    op.create_table(
        "event",
        sa.Column("seq", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text()),
        sa.Column("job_id", KEY),
        sa.Column("attempt", sa.BigInteger()),
        sa.Column("old_state", sa.Text()),
        sa.Column("new_state", sa.Text()),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("owner_id", KEY),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_event")),
    )
    op.create_index("ix_event_job", "event", ["job_id", "seq"])
    op.create_index("ix_event_owner", "event", ["owner_id", "seq"], sqlite_where=OWNED, postgresql_where=OWNED)
    op.create_index("ix_event_tenant", "event", ["tenant", "seq"])
    op.create_table(
        "job_array",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("indices", sa.Text(), nullable=False),
        sa.Column("tasks", sa.BigInteger(), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_array")),
    )
    op.create_index("ix_job_array_submitted", "job_array", ["submitted_at", "id"])
    op.create_index("ix_job_array_tenant_name", "job_array", ["tenant", "name"])
    op.create_table(
        "job",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("ranks", sa.BigInteger(), nullable=False),
        sa.Column("priority_class", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("desired", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("deadline_at", sa.Double()),
        sa.Column("expected_s", sa.Double()),
        sa.Column("retries", sa.Text(), nullable=False),
        sa.Column("waited_s", sa.Double(), nullable=False),
        sa.Column("ran_s", sa.Double(), nullable=False),
        sa.Column("error_code", sa.Text()),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("wait_cause", sa.Text()),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("owner_id", KEY),
        sa.Column("min_ranks", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger()),
        sa.Column("read_position", sa.Text()),
        sa.Column("array_id", KEY),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_job_idempotency_key"),
    )
    op.create_index("ix_job_array", "job", ["array_id"], sqlite_where=IN_ARRAY, postgresql_where=IN_ARRAY)
    op.create_index("ix_job_ended", "job", ["ended_at"], sqlite_where=FINISHED, postgresql_where=FINISHED)
    op.create_index("ix_job_finished", "job", ["tenant", "state"], sqlite_where=FINISHED, postgresql_where=FINISHED)
    op.create_index("ix_job_owner", "job", ["owner_id"], sqlite_where=OWNED, postgresql_where=OWNED)
    op.create_index("ix_job_submitted", "job", ["submitted_at", "id"])
    op.create_index("ix_job_tenant_name", "job", ["tenant", "name"])
    op.create_index("ix_job_tenant_submitted", "job", ["tenant", "submitted_at", "id"])
    op.create_index(
        "ix_job_tenant_unfinished",
        "job",
        ["tenant", "submitted_at", "id"],
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    )
    op.create_index(
        "ix_job_unfinished", "job", ["submitted_at", "id"], sqlite_where=UNFINISHED, postgresql_where=UNFINISHED
    )
    op.create_table(
        "metric",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric")),
    )
    op.create_index("ix_metric_job", "metric", ["job_id", "id"])
    op.create_table(
        "removed_events",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_removed_events_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_removed_events")),
    )
    op.create_table(
        "tenant",
        sa.Column("name", KEY, nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("quota", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("max_priority_class", sa.Text(), nullable=False),
        sa.Column("sandbox", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenant")),
    )
    op.create_table(
        "attempt",
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("running_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("stop", sa.Text()),
        sa.Column("stop_at", sa.Double()),
        sa.Column("stop_cause", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("error_code", sa.Text()),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_attempt_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_attempt")),
    )
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
        "secret",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_secret_tenant")),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_secret")),
    )
    op.create_table(
        "token",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", KEY),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("read_only", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_token_tenant")),
        sa.CheckConstraint("length(token_sha256) = 64", name=op.f("ck_token_hashed")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_token_token_sha256")),
    )
    op.execute("INSERT INTO control_lease (id, epoch, holder, host, pid, since) VALUES (1, 0, '', '', 0, 0)")
