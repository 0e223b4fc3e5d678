"""Table of rungs: each trial that reached one, with its value and whether it went on."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, Table, Text

from shoal.store import Key, Tables, new_metadata

metadata = new_metadata()

rung = Table(
    "sweep_rung",
    metadata,
    Column("job_id", Key, primary_key=True),
    Column("rung", Integer, primary_key=True),
    Column("array_id", Text, nullable=False),
    Column("value", Double),
    Column("goes_on", Integer, nullable=False),
    Index("ix_sweep_rung_array", "array_id"),
)
"""A `value` that is no number is null."""

TABLES = Tables("sweep", metadata)
