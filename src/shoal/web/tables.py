"""The sign-ins to the page, and the shares of tenants over time. What a browser holds is not here, only its hash."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, Table, Text

from shoal.extension.history import history_table
from shoal.store import Key, Tables, new_metadata

metadata = new_metadata()

session = Table(
    "web_session",
    metadata,
    Column("digest", Key, primary_key=True),
    Column("token_id", Text, nullable=False),
    Column("tenant", Text),
    Column("read_only", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("made_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
)

shares = history_table("web_shares", metadata)

TABLES = Tables("web", metadata)
