"""The planes that there are."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Table, Text, UniqueConstraint, select

from shoal.store import Key, Tables, new_metadata

metadata = new_metadata()

plane = Table(
    "plane",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("busy", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    UniqueConstraint("name", name="uq_plane_name"),
)

TABLES = Tables("tenancy", metadata, living=select(plane.c.id))
