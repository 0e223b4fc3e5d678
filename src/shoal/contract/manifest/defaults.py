"""Sources of values that a manifest leaves out."""

from __future__ import annotations

from enum import StrEnum


class MemoryDefault(StrEnum):
    """Where the memory of a job comes from whose manifest names none."""

    SHARE = "share"
    EARLIER = "earlier-jobs"
    TENANT = "tenant"
    SERVER = "server"

    @property
    def words(self) -> str:
        return _DEFAULT_WORDS[self]


_DEFAULT_WORDS = {
    MemoryDefault.SHARE: "the default for what else it asks for",
    MemoryDefault.EARLIER: "the default by what earlier jobs of this name used",
    MemoryDefault.TENANT: "the default of its tenant",
    MemoryDefault.SERVER: "the default of this server",
}
