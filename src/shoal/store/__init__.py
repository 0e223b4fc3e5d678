"""The control plane's memory: one database, SQLite by default or PostgreSQL by URL, with one writer.

A job's row is the projection of its events and both are written in one transaction. All writes go through one
writer, which commits what waits as a group; a write is acknowledged once it is on disk. A process that controls the
database holds its lease, and the lease's epoch fences out a predecessor. Reads go beside the writer. Extensions bring
tables of their own (`Tables`), which they write in the same transactions as events and jobs.
"""

from shoal.store.backup import check_database, copy_database
from shoal.store.database import Database
from shoal.store.lease import control_lock
from shoal.store.migrate import Standing, standings
from shoal.store.position import (
    WAYS_OUT,
    Position,
    database_files,
    find_loss,
    last_sequence,
    position_file,
    read_position,
    sqlite_path,
)
from shoal.store.reads import read_tokens
from shoal.store.store import Store, open_store
from shoal.store.tables import Key, Tables, index_where, new_metadata
from shoal.store.writer_threads import WriterThreads

__all__ = [
    "WAYS_OUT", "Database", "Key", "Position", "Standing", "Store", "Tables", "WriterThreads", "check_database",
    "control_lock", "copy_database", "database_files", "find_loss", "index_where", "last_sequence", "new_metadata",
    "open_store", "position_file", "read_position", "read_tokens", "sqlite_path", "standings",
]  # fmt: skip
