"""What the system says of its users, and how it is asked."""

from __future__ import annotations

import grp
import os
import pwd
import threading
from pathlib import Path

import pytest

from shoal.core import ManualClock, Unavailable
from shoal.users.accounts import FRESH_S, Accounts, SystemUser, ThisSystem
from tests.users.kit import FakeSystem, person


@pytest.mark.parametrize("entry", pwd.getpwall()[:20], ids=lambda entry: entry.pw_name)
def test_this_system_is_told_of_as_it_is(entry: pwd.struct_passwd) -> None:
    same_number = pwd.getpwuid(entry.pw_uid)
    groups = sorted({entry.pw_gid, *(one.gr_gid for one in grp.getgrall() if entry.pw_name in one.gr_mem)})
    names = {one.gr_name for one in grp.getgrall() if one.gr_gid in groups}
    wanted = SystemUser(
        entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups), frozenset(names), Path(entry.pw_dir or "/"),
        entry.pw_shell or "/bin/sh",
    )  # fmt: skip
    assert ThisSystem().user(entry.pw_name) == wanted
    assert ThisSystem().user(entry.pw_uid) == ThisSystem().user(same_number.pw_name)


def test_what_this_system_has_not() -> None:
    assert ThisSystem().user("no-such-user-here") is None
    assert ThisSystem().user(0x7FFF_FFF0) is None
    assert ThisSystem().has_group(grp.getgrgid(os.getgid()).gr_name)
    assert not ThisSystem().has_group("no-such-group-here")


async def test_a_user_is_asked_for_once_and_known_for_a_while() -> None:
    clock, system = ManualClock(0.0), FakeSystem(person("alice", 1000, "staff"))
    accounts = Accounts(clock, system)
    try:
        found = await accounts.user(1000)
        assert found is not None
        assert (await accounts.user(1000), accounts.known(1000), system.asked) == (found, found, [1000])
        clock.advance(FRESH_S)
        system.users.clear()
        assert await accounts.user(1000) is None
        assert system.asked == [1000, 1000]
        assert (await accounts.named("alice"), await accounts.has_group("staff")) == (None, False)
    finally:
        accounts.close()


async def test_a_system_that_says_nothing_is_named_with_what_was_asked() -> None:
    system = FakeSystem(person("alice", 1000))
    system.silent[1000] = threading.Event()
    accounts = Accounts(ManualClock(0.0), system, answer_s=0.01)
    try:
        with pytest.raises(Unavailable, match="who the user 1000 is") as refused:
            await accounts.user(1000)
        assert refused.value.hint == "does `getent passwd` answer there?"
    finally:
        system.silent[1000].set()
        accounts.close()
