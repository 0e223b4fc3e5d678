"""All rentals that there were: the ledger is made of them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, Table, Text, select

from shoal.store import Key, Tables, new_metadata

metadata = new_metadata()

rental = Table(
    "market_rental",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("offer", Text, nullable=False),
    Column("micro_usd_per_hour", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("wanted_at", Double, nullable=False),
    Column("until", Double, nullable=False),
    Column("micro_usd", BigInteger, nullable=False),
    Column("instance_id", Text, nullable=False),
    Column("launched_at", Double),
    Column("ended_at", Double),
    Column("ready", Integer, nullable=False),
    Column("exact", Integer, nullable=False),
    Column("cause", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Index("ix_market_rental_tenant", "tenant"),
    Index("ix_market_rental_state", "state"),
)

TABLES = Tables("market", metadata, living=select(rental.c.id).where(rental.c.state != "ENDED"))
