"""Who calls: by the number that the kernel shows, or by a token that belongs to a user."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from shoal.contract.principal import Principal, User
from shoal.core import Forbidden, ManualClock, Unavailable
from shoal.users import Kind, Role, Rule, RunAs, accounts
from shoal.users.accounts import Accounts
from shoal.users.live.callers import Whose
from tests.users.kit import FakeSystem, person

OVERFLOW = 65534


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(0.0)
        self.system = FakeSystem(person("alice", 1000, "staff"), person("bob", 1001, "staff"), person("eve", 1002))
        self.accounts = Accounts(self.clock, self.system, answer_s=0.05)
        self.rules: dict[tuple[Kind, str], Rule] = {}
        self.holders: dict[str, User] = {}
        self.whose = Whose(
            self.accounts, lambda: self.rules, lambda: self.holders, own_uid=990, overflow=OVERFLOW
        )  # fmt: skip

    def rule(self, kind: Kind, name: str, tenant: str | None = "red", role: Role = Role.MEMBER) -> None:
        self.rules[kind, name] = Rule(kind, name, tenant, role, RunAs.SELF, 0.0)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.accounts.close()


async def test_root_and_the_servers_own_user_are_admins(world: World) -> None:
    for uid in (0, 990):
        who = await world.whose.local(uid)
        assert who.admin
        assert who.user is None
    assert world.system.asked == []


async def test_a_user_of_the_table_is_who_it_says(world: World) -> None:
    world.rule(Kind.GROUP, "staff")
    world.rule(Kind.USER, "bob", "blue", Role.VIEWER)
    alice, bob = await world.whose.local(1000), await world.whose.local(1001)
    assert alice == Principal("red", "socket:1000", user=User("alice", 1000), own_only=True)
    assert (bob.tenant, bob.read_only) == ("blue", True)
    world.rule(Kind.GROUP, "staff", role=Role.LEAD)
    assert not (await world.whose.local(1000)).own_only
    world.rule(Kind.GROUP, "staff", None, Role.ADMIN)
    assert (await world.whose.local(1000)).admin


async def test_others_are_refused_in_words(world: World) -> None:
    world.rule(Kind.GROUP, "staff")
    with pytest.raises(Forbidden, match="the user eve of this machine belongs to no tenant") as refused:
        await world.whose.local(1002)
    assert "shoal users add eve --tenant TENANT" in (refused.value.hint or "")
    with pytest.raises(Forbidden, match="the user id 4711 has no name"):
        await world.whose.local(4711)


async def test_whoever_the_kernel_has_no_number_for_is_refused_though_the_system_has_a_user_of_that_number(
    world: World,
) -> None:
    world.system.users.append(person("nobody", OVERFLOW, "staff"))
    world.rule(Kind.GROUP, "staff")
    world.rule(Kind.USER, "nobody", None, Role.ADMIN)
    with pytest.raises(Forbidden, match=r"^you call from another user namespace, such as a container: this") as refused:
        await world.whose.local(OVERFLOW)
    assert "(`shoal users token NAME`)" in (refused.value.hint or "")


async def test_whoever_leaves_a_group_is_out_soon(world: World) -> None:
    world.rule(Kind.GROUP, "staff")
    await world.whose.local(1000)
    world.system.users[0] = person("alice", 1000)
    world.clock.advance(accounts.FRESH_S + 1)
    with pytest.raises(Forbidden):
        await world.whose.local(1000)


async def test_a_token_of_a_user_is_worth_what_the_user_is_now(world: World) -> None:
    world.rule(Kind.USER, "alice")
    token = Principal("red", "tok-1")
    assert await world.whose.holder(token) == token, "it belongs to nobody"
    world.holders["tok-1"] = User("alice", 1000)
    who = await world.whose.holder(token)
    assert (who.user, who.own_only, who.read_only) == (User("alice", 1000), True, False)
    assert (await world.whose.holder(replace(token, read_only=True))).read_only
    world.rule(Kind.USER, "alice", "blue")
    with pytest.raises(Forbidden, match="tenant red, where they are no more") as refused:
        await world.whose.holder(token)
    assert refused.value.hint == "ask for another one: `shoal users token alice`"
    world.rule(Kind.USER, "alice", None, Role.ADMIN)
    with pytest.raises(Forbidden):
        await world.whose.holder(token)
    world.rules.clear()
    with pytest.raises(Forbidden, match="belongs to no tenant"):
        await world.whose.holder(token)


async def test_a_number_that_is_another_users_by_now_opens_nothing(world: World) -> None:
    world.rule(Kind.USER, "alice")
    world.rule(Kind.USER, "mallory")
    world.holders["tok-1"] = User("alice", 1000)
    world.system.users[0] = person("mallory", 1000)
    with pytest.raises(Forbidden, match="no user of the server's machine any more"):
        await world.whose.holder(Principal("red", "tok-1"))


async def test_a_directory_that_does_not_answer_holds_up_nobody_else(world: World) -> None:
    world.rule(Kind.GROUP, "staff")
    world.system.silent[1000] = answer = threading.Event()
    with pytest.raises(Unavailable, match="the system does not say who the user 1000 is"):
        await world.whose.local(1000)
    with pytest.raises(Unavailable):
        await world.whose.local(1000)
    assert world.system.asked == [1000], "it is asked once at a time"
    while True:
        with contextlib.suppress(Unavailable):
            assert (await world.whose.local(1001)).tenant == "red"
            break
    answer.set()
    while True:
        with contextlib.suppress(Unavailable):
            assert (await world.whose.local(1000)).tenant == "red"
            break
