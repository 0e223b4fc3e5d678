"""Sessions of people who are signed in. Browsers hold random ids of 256 bits; memory and the database know their hashes
only.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from shoal.contract.principal import Principal
from shoal.core import Clock, Invalid, Overloaded, token_digest
from shoal.store import Store
from shoal.web.tables import session as table


class Voucher(StrEnum):
    """Who says who a browser's user is: who gave out its token, or an identity provider."""

    HOLDER = "token"
    PROVIDER = "oidc"


MOST_OF_ONE = 100
"""Sign-ins of one token; a further one ends the oldest."""
_MOST_CODES = 1000
CODE_LIFETIME_S = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's sign-in."""

    digest: str
    token_id: str
    tenant: str | None
    read_only: bool
    name: str
    by: Voucher
    made_at: float
    used_at: float
    expires_at: float

    @property
    def principal(self) -> Principal:
        return Principal(self.tenant, self.token_id, self.read_only)


class Sessions:
    """`ended` is called with each session that is over, and why: signed-out, expired or revoked."""

    def __init__(
        self, store: Store, clock: Clock, *, lifetime_s: float, idle_s: float, ended: Callable[[Session, str], None]
    ) -> None:
        self._store, self._clock, self._ended = store, clock, ended
        self._lifetime_s, self._idle_s = lifetime_s, idle_s
        self._by_digest: dict[str, Session] = {}
        self._used_at: dict[str, float] = {}
        self._changed: set[str] = set()
        self._gone: set[str] = set()

    def load(self) -> None:
        for row in self._store.rows(select(table)):
            values = {field.name: getattr(row, field.name) for field in fields(Session)}
            one = Session(**{**values, "read_only": bool(values["read_only"]), "by": Voucher(values["by"])})
            self._by_digest[one.digest] = one
            self._used_at[one.digest] = one.used_at

    def find(self, secret: str) -> Session | None:
        """The session of a cookie, which is used by it; None where there is none, or it is over."""
        one = self._by_digest.get(token_digest(secret))
        if one is None:
            return None
        now = self._clock.now()
        if now >= self._end_of(one):
            self._drop(one, "expired")
            return None
        if now - self._used_at[one.digest] >= 1.0:
            self._used_at[one.digest] = now
            self._changed.add(one.digest)
        return one

    def is_live(self, digest: str) -> bool:
        """Whether this session still stands. Does not count as its use."""
        one = self._by_digest.get(digest)
        return one is not None and self._clock.now() < self._end_of(one)

    async def start(self, who: Principal, name: str, by: Voucher) -> tuple[str, Session]:
        """Sign in; the first value is for the browser, and kept nowhere."""
        secret, now = secrets.token_urlsafe(32), self._clock.now()
        one = Session(
            token_digest(secret), who.token_id, who.tenant, who.read_only, name, by, now, now, now + self._lifetime_s
        )
        same = sorted(
            (other for other in self._by_digest.values() if other.token_id == who.token_id), key=lambda it: it.made_at
        )
        for old in same[: max(0, len(same) - MOST_OF_ONE + 1)]:
            self._drop(old, "expired")
        self._by_digest[one.digest], self._used_at[one.digest] = one, now
        await self._store.transact(lambda connection: _insert(connection, one))
        return secret, one

    async def end(self, one: Session) -> None:
        self._drop(one, "signed-out")
        await self.write()

    def keep(self, valid: Callable[[Session], bool]) -> None:
        """End all sessions whose principal is not valid any more."""
        for one in [one for one in self._by_digest.values() if not valid(one)]:
            self._drop(one, "revoked")

    async def write(self) -> None:
        """End what is over, and bring the table up to date."""
        now = self._clock.now()
        for one in [one for one in self._by_digest.values() if now >= self._end_of(one)]:
            self._drop(one, "expired")
        gone, self._gone = self._gone, set()
        used = [{"key": digest, "used": self._used_at[digest]} for digest in self._changed]
        self._changed = set()
        if not gone and not used:
            return

        def run(connection: Connection) -> bool:
            if gone:
                over = delete(table).where(table.c.digest == bindparam("key"))
                connection.execute(over, [{"key": one} for one in gone])
            if used:
                newer = update(table).where(table.c.digest == bindparam("key")).values(used_at=bindparam("used"))
                connection.execute(newer, used)
            return True

        try:
            await self._store.transact(run)
        except BaseException:
            self._gone |= gone
            raise

    def __len__(self) -> int:
        return len(self._by_digest)

    def _end_of(self, one: Session) -> float:
        return min(one.expires_at, self._used_at[one.digest] + self._idle_s)

    def _drop(self, one: Session, why: str) -> None:
        if self._by_digest.pop(one.digest, None) is not None:
            self._used_at.pop(one.digest, None)
            self._changed.discard(one.digest)
            self._gone.add(one.digest)
            self._ended(one, why)


def _insert(connection: Connection, one: Session) -> bool:
    connection.execute(insert(table).values({**asdict(one), "read_only": int(one.read_only), "by": one.by.value}))
    return True


@dataclass(frozen=True, slots=True)
class Identity:
    """A principal, and how people know it."""

    principal: Principal
    name: str


class Codes:
    """Codes of one-time links, in memory only: a restart of the server voids them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_digest: dict[str, tuple[Identity, float]] = {}

    def make(self, who: Identity) -> tuple[str, float]:
        """A code, and until when it is good. Raises Overloaded."""
        now = self._clock.now()
        self._by_digest = {digest: one for digest, one in self._by_digest.items() if one[1] > now}
        if len(self._by_digest) >= _MOST_CODES:
            raise Overloaded("too many links are waiting to be used", retry_after_s=CODE_LIFETIME_S)
        code, until = secrets.token_urlsafe(32), now + CODE_LIFETIME_S
        self._by_digest[token_digest(code)] = who, until
        return code, until

    def use(self, code: str) -> Identity:
        """Whom a code signs in; it is good for nothing then. Raises Invalid."""
        who, until = self._by_digest.pop(token_digest(code), (None, 0.0))
        if who is None or self._clock.now() >= until:
            raise Invalid("this link is over, or was used before", where="code", hint="make another with `shoal web`")
        return who

    def keep(self, valid: Callable[[Principal], bool]) -> None:
        """Void the codes of principals that are not valid any more."""
        self._by_digest = {key: one for key, one in self._by_digest.items() if valid(one[0].principal)}


class KnownTokens:
    """The identities of all valid tokens."""

    def __init__(self) -> None:
        self._by_digest: dict[str, Identity] = {}
        self._principals: set[Principal] = set()
        self._ids: set[str] = set()

    def replace(self, tokens: Iterable[tuple[str, Identity]]) -> None:
        """By the hash of the token."""
        self._by_digest = dict(tokens)
        self._principals = {one.principal for one in self._by_digest.values()}
        self._ids = {one.token_id for one in self._principals}

    def find(self, token: str) -> Identity | None:
        return self._by_digest.get(token_digest(token.strip()))

    def has(self, who: Principal) -> bool:
        return who in self._principals

    def has_id(self, token_id: str) -> bool:
        return token_id in self._ids
