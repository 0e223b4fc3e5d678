"""The control plane's memory: one database, SQLite by default or PostgreSQL by URL, with one writer.

A job's row is the projection of its events and both are written in one transaction. All writes go through one
writer, which commits what waits as a group; a write is acknowledged once it is on disk. A process that controls the
database holds its lease, and the lease's epoch fences out a predecessor. Reads go beside the writer.
"""

from shoal.store.store import Store, open_store

__all__ = ["Store", "open_store"]
