"""A tenant's sandbox is had as asked for, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shoal.control.sandboxes import at_the_start, require_apart, require_sandbox, sandboxed, usual_sandbox
from shoal.core import Capability, Fault, Invalid, Sandbox, Unavailable
from shoal.engine import Engine, Gang, LaunchFailed, RankSpec

GANG = Gang("job.1.run", ("true",), (RankSpec(0, "here"),), Path("/nowhere"))


def engine(*capabilities: Capability) -> Engine:
    return cast(Engine, SimpleNamespace(name="fake", capabilities=lambda: capabilities))


HAS_USER = engine(
    Capability("sandbox-user", True, "works"), Capability("sandbox-bubblewrap", False, "bwrap is not installed")
)


def test_the_stronger_of_two_levels_counts() -> None:
    assert Sandbox.USER.at_least(Sandbox.NONE) is Sandbox.USER
    assert Sandbox.USER.at_least(Sandbox.BUBBLEWRAP) is Sandbox.BUBBLEWRAP
    assert Sandbox.BUBBLEWRAP.at_least(Sandbox.USER) is Sandbox.BUBBLEWRAP


def test_a_level_that_can_be_had_goes_with_the_gang() -> None:
    require_sandbox(Sandbox.USER, HAS_USER)
    made = sandboxed(GANG, "red", Sandbox.USER, HAS_USER)
    assert (made.tenant, made.sandbox) == ("red", Sandbox.USER)


def test_none_asks_nothing_of_an_engine() -> None:
    require_sandbox(Sandbox.NONE, engine())
    assert sandboxed(GANG, "red", Sandbox.NONE, engine()).sandbox is Sandbox.NONE


def test_where_the_server_is_root_a_new_tenant_gets_a_user_or_is_refused() -> None:
    cannot = engine(Capability("sandbox-user", False, "no CAP_SYS_ADMIN"))
    for there in (HAS_USER, cannot):
        assert usual_sandbox(there, root=True) is Sandbox.USER
        assert usual_sandbox(there, root=False) is Sandbox.NONE
    assert usual_sandbox(engine(), root=True) is Sandbox.NONE  # its processes are started elsewhere
    with pytest.raises(Unavailable, match="no CAP_SYS_ADMIN") as refused:
        require_sandbox(usual_sandbox(cannot, root=True), cannot)
    assert "--sandbox none" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("least", "root", "here", "what"),
    [
        (Sandbox.NONE, True, True, "of new tenants have the sandbox user; those of the tenant default run as root"),
        (Sandbox.NONE, False, True, "a token is worth as much as this user"),
        (Sandbox.BUBBLEWRAP, True, True, "have the sandbox bubblewrap"),
        (Sandbox.NONE, True, False, "run where the engine starts them"),
    ],
)
def test_who_starts_the_server_reads_as_whom_jobs_run(least: Sandbox, root: bool, here: bool, what: str) -> None:
    assert what in at_the_start(least, root=root, starts_here=here)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (HAS_USER, "cannot be had: bwrap is not installed"),
        (engine(), "had: the engine fake has no sandboxes"),
    ],
)
def test_a_level_that_cannot_be_had_is_refused(there: Engine, why: str) -> None:
    with pytest.raises(Unavailable, match=why) as refused:
        require_sandbox(Sandbox.BUBBLEWRAP, there)
    assert refused.value.where == "sandbox"
    assert "shoal doctor" in str(refused.value.hint)
    with pytest.raises(LaunchFailed, match=why) as failed:
        sandboxed(GANG, "red", Sandbox.BUBBLEWRAP, there)
    assert failed.value.fault is Fault.PLATFORM


def test_a_job_is_kept_from_the_network_by_bubblewrap_or_refused() -> None:
    apart, every = replace(GANG, network=False), engine(*(Capability(f"sandbox-{one}", True, "") for one in Sandbox))
    require_apart(False, Sandbox.BUBBLEWRAP)
    assert not sandboxed(apart, "red", Sandbox.BUBBLEWRAP, every).network
    for level in (Sandbox.NONE, Sandbox.USER):
        require_apart(True, level)
        assert sandboxed(GANG, "red", level, every).network
        with pytest.raises(Invalid, match=f"its tenant has {level.value}") as refused:
            require_apart(False, level)
        assert refused.value.where == "network"
        with pytest.raises(LaunchFailed, match="does not keep a job from the network"):
            sandboxed(apart, "red", level, every)
