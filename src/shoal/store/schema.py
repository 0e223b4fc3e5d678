"""The store's own tables. JSON stands in text columns, so both databases keep the very same bytes.

A change here needs a new revision in `migrations/versions` and a new `HEAD`; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from shoal.store.tables import Key, index_where, new_metadata

HEAD = "0001"
"""The newest revision in `migrations/versions`; kept here so that opening a current database needs no Alembic."""

metadata = new_metadata()

# SQLite makes a column its row id only when the type is spelled INTEGER.
RowId = BigInteger().with_variant(Integer(), "sqlite")

UNFINISHED = text("ended_at IS NULL")
FINISHED = text("ended_at IS NOT NULL")
"""A job is in one of the two. Not told by its state: SQLite writes an entry of such an index anew whenever a column of
the condition is set, and the state is set at every step. So a step takes a quarter of the time."""

OWNED = text("owner_id IS NOT NULL")
IN_ARRAY = text("array_id IS NOT NULL")

job = Table(
    "job",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Key, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("resources", Text, nullable=False),
    Column("ranks", BigInteger, nullable=False),
    Column("priority_class", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("desired", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("not_before", Double, nullable=False),
    Column("deadline_at", Double),
    Column("expected_s", Double),
    Column("retries", Text, nullable=False),
    Column("waited_s", Double, nullable=False),
    Column("ran_s", Double, nullable=False),
    Column("error_code", Text),
    Column("message", Text, nullable=False),
    Column("reason", Text),
    Column("wait_cause", Text),
    Column("progress", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("fingerprint", Text, nullable=False),
    Column("owner_id", Key),
    Column("min_ranks", BigInteger, nullable=False),
    Column("size", BigInteger),
    Column("read_position", Text),
    Column("array_id", Key),
    UniqueConstraint("tenant", "idempotency_key", name="uq_job_idempotency_key"),
    Index("ix_job_submitted", "submitted_at", "id"),
    Index("ix_job_tenant_submitted", "tenant", "submitted_at", "id"),
    Index("ix_job_tenant_name", "tenant", "name"),
    index_where("ix_job_tenant_unfinished", "tenant", "submitted_at", "id", where=UNFINISHED),
    index_where("ix_job_finished", "tenant", "state", where=FINISHED),
    index_where("ix_job_ended", "ended_at", where=FINISHED),
    index_where("ix_job_unfinished", "submitted_at", "id", where=UNFINISHED),
    index_where("ix_job_owner", "owner_id", where=OWNED),
    index_where("ix_job_array", "array_id", where=IN_ARRAY),
)

# As long as any of its tasks is there.
job_array = Table(
    "job_array",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Key, nullable=False),
    Column("indices", Text, nullable=False),
    Column("tasks", BigInteger, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Index("ix_job_array_submitted", "submitted_at", "id"),
    Index("ix_job_array_tenant_name", "tenant", "name"),
)

attempt = Table(
    "attempt",
    metadata,
    Column("job_id", Key, ForeignKey("job.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("placement", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("running_at", Double),
    Column("ended_at", Double),
    Column("stop", Text),
    Column("stop_at", Double),
    Column("stop_cause", Text, nullable=False),
    Column("outcome", Text),
    Column("error_code", Text),
    Column("message", Text, nullable=False),
    Column("ranks", Text, nullable=False),
)

event = Table(
    "event",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("tenant", Text),
    Column("job_id", Key),
    Column("attempt", BigInteger),
    Column("old_state", Text),
    Column("new_state", Text),
    Column("data", Text, nullable=False),
    Column("owner_id", Key),
    Index("ix_event_job", "job_id", "seq"),
    Index("ix_event_tenant", "tenant", "seq"),
    index_where("ix_event_owner", "owner_id", "seq", where=OWNED),
)

# At most one row: up to which event some may be missing, for their job or their age was over.
removed_events = Table(
    "removed_events",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="single"), primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
)

tenant = Table(
    "tenant",
    metadata,
    Column("name", Key, primary_key=True),
    Column("weight", Double, nullable=False),
    Column("quota", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("max_priority_class", Text, nullable=False),
    Column("sandbox", Text, nullable=False),
)

bundle = Table(
    "bundle",
    metadata,
    Column("tenant", Key, ForeignKey("tenant.name"), primary_key=True),
    Column("digest", Key, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("unpacked_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
)

token = Table(
    "token",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Key, ForeignKey("tenant.name")),
    Column("token_sha256", Text, CheckConstraint("length(token_sha256) = 64", name="hashed"), nullable=False),
    Column("label", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("revoked_at", Double),
    Column("read_only", BigInteger, nullable=False),
    UniqueConstraint("token_sha256"),
)

secret = Table(
    "secret",
    metadata,
    Column("tenant", Key, ForeignKey("tenant.name"), primary_key=True),
    Column("name", Key, primary_key=True),
    Column("ciphertext", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

drained_node = Table(
    "drained_node",
    metadata,
    Column("name", Key, primary_key=True),
    Column("because", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

# A metric's value is NULL where the job reported NaN, which SQLite cannot keep.
metric = Table(
    "metric",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("job_id", Key, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("step", BigInteger),
    Column("name", Text, nullable=False),
    Column("value", Double),
    Index("ix_metric_job", "job_id", "id"),
)

# One row. Locking it is what makes writers of one database take turns, so sequence numbers grow in commit order.
control_lease = Table(
    "control_lease",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="single"), primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("since", Double, nullable=False),
)

NO_HOLDER = {"id": 1, "epoch": 0, "holder": "", "host": "", "pid": 0, "since": 0.0}
"""The lease's row in a new database."""
