"""As whom a job runs, decided from who submitted it and what the table and the system say now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from shoal.contract.gangs import gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.principal import User
from shoal.core import ManualClock, Unavailable
from shoal.engine import Gang, HomeShown, RankSpec, Refused
from shoal.users import Kind, Role, Rule, RunAs
from shoal.users.accounts import KNOWN_S, Accounts
from shoal.users.live.running import Running
from tests.users.kit import FakeSystem, person

ALICE = User("alice", 1000)


@dataclass
class World:
    clock: ManualClock
    system: FakeSystem
    accounts: Accounts
    rules: dict[tuple[Kind, str], Rule]
    submitted_by: User | None = ALICE
    missing: str | None = None
    allow_root: bool = False

    def rule(self, role: Role = Role.MEMBER, run_as: RunAs = RunAs.SELF, tenant: str | None = "red") -> None:
        self.rules[Kind.USER, "alice"] = Rule(Kind.USER, "alice", tenant, role, run_as, 0.0)

    def prepared(self, state: JobState = JobState.STARTING, phase: str = "run", **section: str) -> Gang:
        running = Running(
            self.accounts, lambda: self.rules, lambda _: self.submitted_by, umask=0o027, allow_root=self.allow_root,
            missing=lambda: self.missing,
        )  # fmt: skip
        job: Any = SimpleNamespace(
            job=SimpleNamespace(id="j-1", tenant="red", state=state),
            manifest=SimpleNamespace(extensions={"users": section} if section else {}),
        )
        run_dir = Path("/srv/shoal/runs/j-1/1")
        return running.prepared(job, Gang(gang_name("j-1", 1, phase), ("true",), (RankSpec(0, "n"),), run_dir))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock(0.0)
    system = FakeSystem(person("alice", 1000, "staff"), person("root", 0))
    world = World(clock, system, Accounts(clock, system), {})
    world.rule()
    await world.accounts.user(1000)
    yield world
    world.accounts.close()


async def test_a_users_job_runs_as_that_user(world: World) -> None:
    account = world.prepared().account
    assert account is not None
    assert (account.name, account.uid, account.gid, account.groups) == ("alice", 1000, 1000, (1000, 50))
    assert (account.home, account.shell, account.umask) == (Path("/home/alice"), "/bin/bash", 0o027)


async def test_what_no_user_submitted_runs_as_before(world: World) -> None:
    world.submitted_by = None
    assert world.prepared().account is None
    with pytest.raises(Refused, match="only a job that runs as a user"):
        world.prepared(directory="/root")


async def test_it_starts_in_the_users_directory_and_moves_its_data_in_the_servers(world: World) -> None:
    assert world.prepared(directory="/data/x").directory == Path("/data/x")
    assert world.prepared(directory="~").directory == Path("/home/alice")
    assert world.prepared(directory="~/a b").directory == Path("/home/alice/a b")
    assert world.prepared(phase="download", directory="~").directory is None
    assert world.prepared(home="read").home is HomeShown.READ


async def test_a_manifest_names_no_user(world: World) -> None:
    for name in ("uid", "user", "account", "gid"):
        with pytest.raises(ValueError, match="Extra inputs"):
            world.prepared(**{name: "0"})


async def test_a_user_of_the_tenants_own_where_the_table_says_so(world: World) -> None:
    world.rule(run_as=RunAs.TENANT)
    assert world.prepared().account is None
    with pytest.raises(Refused, match="do not run as that user"):
        world.prepared(home="write")


async def test_a_user_who_was_removed_starts_nothing_and_keeps_what_has_begun(world: World) -> None:
    world.rules.clear()
    with pytest.raises(Refused, match="belongs to no tenant"):
        world.prepared()
    for state in (JobState.DOWNLOADING, JobState.RUNNING, JobState.STORING):
        account = world.prepared(state).account
        assert account is not None
        assert account.uid == 1000


@pytest.mark.parametrize(("role", "tenant"), [(Role.VIEWER, "red"), (Role.MEMBER, "blue")])
async def test_a_user_who_may_submit_here_no_more_starts_nothing(world: World, role: Role, tenant: str) -> None:
    world.rule(role, tenant=tenant)
    with pytest.raises(Refused, match="may submit nothing in tenant red any more"):
        world.prepared()


async def test_who_has_the_number_of_a_user_that_is_gone_is_given_nothing(world: World) -> None:
    world.system.users[0] = person("mallory", 1000)
    world.rules[Kind.USER, "mallory"] = Rule(Kind.USER, "mallory", "red", Role.MEMBER, RunAs.SELF, 0.0)
    world.clock.advance(KNOWN_S)
    await world.accounts.user(1000)
    with pytest.raises(Refused, match="alice, who submitted it, is no user of this machine any more"):
        world.prepared()
    begun = world.prepared(JobState.RUNNING).account
    assert begun is not None
    assert (begun.uid, begun.gid, begun.groups) == (1000, 65534, ())


async def test_the_system_is_asked_again_before_a_job_starts_much_later(world: World) -> None:
    world.clock.advance(KNOWN_S)
    with pytest.raises(Unavailable):
        world.prepared()
    await world.accounts.user(1000)
    assert world.prepared().account is not None


async def test_root_runs_nothing_unless_a_setting_says_so(world: World) -> None:
    world.submitted_by = User("root", 0)
    world.rules[Kind.USER, "root"] = Rule(Kind.USER, "root", "red", Role.MEMBER, RunAs.SELF, 0.0)
    await world.accounts.user(0)
    with pytest.raises(Refused, match="no job runs as root"):
        world.prepared()
    world.allow_root = True
    account = world.prepared().account
    assert account is not None
    assert account.uid == 0


async def test_a_server_that_is_not_root_says_whose_jobs_it_runs(world: World) -> None:
    world.missing = "the server runs as carol, not as root"
    with pytest.raises(Refused, match="runs as carol") as refused:
        world.prepared()
    assert "--run-as tenant" in (refused.value.hint or "")
