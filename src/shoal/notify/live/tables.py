"""Subscriptions, the position in the log of events, and the outbox: news, and the deliveries that carry them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, Table, Text, UniqueConstraint, text

from shoal.store import Key, Tables, index_where, new_metadata

metadata = new_metadata()

NOT_CARRIED = text("delivery_id IS NULL")
NOT_ENDED = text("ended_at IS NULL")

# One row: the last event whose news are in the outbox.
position = Table(
    "notify_position",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
)

# The address is sealed: a URL may hold a token.
subscription = Table(
    "notify_subscription",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Key, nullable=False),
    Column("name", Key, nullable=False),
    Column("kind", Text, nullable=False),
    Column("address", LargeBinary, nullable=False),
    Column("topics", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("from_seq", BigInteger, nullable=False),
    Column("jobs", Text, nullable=False),
    Column("waits_s", Double),
    Column("schedule", Text, nullable=False),
    UniqueConstraint("tenant", "name", name="uq_notify_subscription_name"),
)

news = Table(
    "notify_news",
    metadata,
    Column("id", Key, primary_key=True),
    Column("channel", Key, nullable=False),
    Column("owner", Key, nullable=False),
    Column("tenant", Key, nullable=False),
    Column("topic", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("about", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("job_id", Key),
    Column("facts", Text, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("delivery_id", Key),
    index_where("ix_notify_news_waiting", "channel", "due_at", "id", where=NOT_CARRIED),
    Index("ix_notify_news_delivery", "delivery_id"),
)

delivery = Table(
    "notify_delivery",
    metadata,
    Column("id", Key, primary_key=True),
    Column("channel", Key, nullable=False),
    Column("owner", Key, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("next_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("error", Text, nullable=False),
    index_where("ix_notify_delivery_open", "channel", "next_at", where=NOT_ENDED),
    Index("ix_notify_delivery_created", "created_at", "id"),
    Index("ix_notify_delivery_ended", "ended_at"),
)

# What a restart must not forget: the first forecast of a waiting job's start, and since when an objective is missed.
mark = Table(
    "notify_mark",
    metadata,
    Column("name", Key, primary_key=True),
    Column("at", Double, nullable=False),
)

TABLES = Tables("notify", metadata)
