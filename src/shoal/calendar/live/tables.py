"""The tables of the calendar."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Integer, Table, Text, UniqueConstraint

from shoal.store import Key, Tables, new_metadata

metadata = new_metadata()

cron = Table(
    "cron",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("expression", Text, nullable=False),
    Column("zone", Text, nullable=False),
    Column("overlap", Text, nullable=False),
    Column("missed", Text, nullable=False),
    Column("suspended", Integer, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("position", Double, nullable=False),
    Column("last_job", Text),
    Column("last_at", Double),
    Column("replaces", Text),
    Column("trouble", Text, nullable=False),
    UniqueConstraint("tenant", "name", name="uq_cron_name"),
)
"""`position` is the last time that was settled; `replaces` a job that is still to be cancelled."""

cron_entry = Table(
    "cron_entry",
    metadata,
    Column("cron_id", Key, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("said", Text, nullable=False),
    Column("job", Text),
    Column("due_at", Double),
)
"""What happened to a cron job lately, by the version that it made."""

plan = Table(
    "plan",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text),
    Column("begin", Double, nullable=False),
    Column("end", Double, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("accelerators", Integer),
    Column("kind", Text, nullable=False),
    Column("repeat", Text, nullable=False),
    Column("last", Double),
    Column("zone", Text, nullable=False),
    Column("because", Text, nullable=False),
    UniqueConstraint("name", name="uq_plan_name"),
)
"""Reservations and maintenance; `nodes` is a JSON list."""

TABLES = Tables("calendar", metadata)
