"""The table of users and groups, and whose a token is, in the server's database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Double, PrimaryKeyConstraint, Table, Text, delete, insert, select

from shoal.contract.principal import User
from shoal.contract.records import NewEvent
from shoal.store import Key, Store, Tables, new_metadata
from shoal.users.rules import Kind, Role, Rule, RunAs

metadata = new_metadata()

rule_table = Table(
    "user_rule",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text),
    Column("role", Text, nullable=False),
    Column("run_as", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("kind", "name", name="pk_user_rule"),
)

token_table = Table(
    "user_token",
    metadata,
    Column("token_id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
)

TABLES = Tables("users", metadata)
_rule = rule_table.c


class UserRepository:
    """The rows, as values."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rules(self) -> dict[tuple[Kind, str], Rule]:
        rows = self._store.rows(select(rule_table).order_by(_rule.kind, _rule.name))
        found = [
            Rule(Kind(kind), name, tenant, Role(role), RunAs(run_as), created_at)
            for kind, name, tenant, role, run_as, created_at in rows
        ]
        return {one.key: one for one in found}

    def holders(self) -> dict[str, User]:
        """Whose a token is, by its id."""
        return {token_id: User(name, uid) for token_id, name, uid in self._store.rows(select(token_table))}

    async def put(self, rule: Rule, event: NewEvent) -> None:
        """In the place of an earlier one of this kind and name."""
        values: dict[str, Any] = {
            "kind": rule.kind.value, "name": rule.name, "tenant": rule.tenant, "role": rule.role.value,
            "run_as": rule.run_as.value, "created_at": rule.created_at,
        }  # fmt: skip

        def run(connection: Connection) -> bool:
            connection.execute(_delete(rule.kind, rule.name))
            connection.execute(insert(rule_table).values(values))
            return True

        await self._store.transact(run, (event,))

    async def remove(self, kind: Kind, name: str, event: NewEvent) -> bool:
        """False where there was none."""

        def run(connection: Connection) -> bool:
            return bool(connection.execute(_delete(kind, name)).rowcount)

        return await self._store.transact(run, (event,))

    async def hold(self, token_id: str, user: User) -> None:
        """Say whose a token will be: before it is made, so that it never is without its user's limits."""

        def run(connection: Connection) -> bool:
            connection.execute(insert(token_table).values(token_id=token_id, name=user.name, uid=user.uid))
            return True

        await self._store.transact(run)


def _delete(kind: Kind, name: str) -> Any:
    return delete(rule_table).where(_rule.kind == kind.value, _rule.name == name)
