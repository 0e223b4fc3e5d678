"""The tables of services.

A change here needs a new revision in `versions` and a new `head`; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Table, Text, UniqueConstraint, select, text

from shoal.extension.history import history_table
from shoal.store import Key, Tables, index_where, new_metadata

metadata = new_metadata()
LIVE = text("state <> 'STOPPED'")

service = Table(
    "service",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("replicas", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("deployment", BigInteger, nullable=False),
    Column("serves", BigInteger, nullable=False),
    Column("launched", BigInteger, nullable=False),
    Column("ended_at", Double),
    Column("reason", Text),
    Column("fingerprint", Text, nullable=False),
    Index("ix_service_created", "created_at", "id"),
    index_where("uq_service_live_name", "tenant", "name", where=LIVE, unique=True),
)

deployment = Table(
    "deployment",
    metadata,
    Column("service_id", Key, ForeignKey("service.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("idempotency_key", Text),
    UniqueConstraint("tenant", "idempotency_key", name="uq_deployment_idempotency_key"),
)

samples = history_table("service_sample", metadata)

TABLES = Tables("serve", metadata, "0002", Path(__file__).parent / "versions", living=select(service.c.id).where(LIVE))
