"""Typed errors: each says what was wrong, where, and what to do about it."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Whose fault a failure is; retry limits are counted per fault (after FfDL's error codes)."""

    USER = "user"
    PLATFORM = "platform"
    INFRASTRUCTURE = "infrastructure"


class ShoalError(Exception):
    """Base of all errors that are meant to be read by a person.

    `what` is one sentence; `where` names the field, file or line; `hint` says what to do.
    """

    code = "error"

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text


class Invalid(ShoalError):
    """The caller's input is wrong; nothing was stored. `problems` lists every problem found, not only the first."""

    code = "invalid"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        problems: tuple[ShoalError, ...] = (),
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.problems = problems


class NotFound(ShoalError):
    code = "not-found"


class Conflict(ShoalError):
    """The request contradicts the present state (a stale version, a reused idempotency key, an illegal step)."""

    code = "conflict"


class LeaseLost(Conflict):
    """Another holder took what this one acted under: it must stop acting, and may not try again."""

    code = "lease-lost"


class Forbidden(ShoalError):
    code = "forbidden"


class Overloaded(ShoalError):
    """A limit is reached for now; `retry_after_s` says when it is worth asking again."""

    code = "overloaded"

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, retry_after_s: float = 1.0
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.retry_after_s = retry_after_s


class Unavailable(ShoalError):
    """The platform cannot do this now (database away); the request had no effect."""

    code = "unavailable"


class DiskFull(Unavailable):
    """Nothing can be written until somebody frees space; the request had no effect."""

    code = "disk-full"
