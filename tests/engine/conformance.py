"""What every engine must do, as one suite. An engine's own test module subclasses `EngineConformance` and gives a kit:

    class TestLocal(EngineConformance):
        @pytest.fixture
        async def kit(self, tmp_path):
            async with ... as kit:
                yield kit

The kit hides how an engine makes a rank behave (real scripts, or a table of the simulator) and how time passes.
"""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from shoal.core import Fault, NotFound
from shoal.engine import Engine, Gang, GangStatus, Inventory, LaunchFailed, Phase


@dataclass(frozen=True)
class Succeed:
    """Exit 0 after a while."""

    after_s: float = 0.0


@dataclass(frozen=True)
class Fail:
    """Exit with a code other than 0 after a while."""

    code: int = 1
    after_s: float = 0.0


@dataclass(frozen=True)
class RunForever:
    """Run until killed; SIGTERM ends it by its default action."""


@dataclass(frozen=True)
class IgnoreTerm:
    """Run until killed by SIGKILL; SIGTERM is ignored."""


@dataclass(frozen=True)
class Cooperate:
    """Use the training hooks: run until any notice is left, then exit with `code`. SIGTERM is ignored."""

    code: int = 75


@dataclass(frozen=True)
class Print:
    """Print the lines, each followed by a newline, then exit 0 after a while."""

    lines: tuple[str, ...]
    after_s: float = 0.0


@dataclass(frozen=True)
class Missing:
    """The rank's command does not exist."""


Behaviour = Succeed | Fail | RunForever | IgnoreTerm | Cooperate | Print | Missing


BEFORE_RUNNING = (Phase.QUEUED, Phase.STARTING)


class EngineKit(ABC):
    """One engine over one home, and the means to drive it."""

    engine: Engine

    @abstractmethod
    def gang(
        self,
        name: str,
        behaviour: Behaviour,
        *,
        ranks: int = 1,
        by_rank: Mapping[int, Behaviour] | None = None,
        grace_s: float = 10.0,
    ) -> Gang:
        """A gang whose ranks behave so; `by_rank` overrides for single ranks."""

    @abstractmethod
    async def in_effect(self, name: str) -> None:
        """Return when every rank of the running gang behaves (handlers installed, lines printed)."""

    @abstractmethod
    async def settle(self, name: str) -> GangStatus:
        """Let time pass until the gang has ended; its last status. Fails when it never ends."""

    @abstractmethod
    async def restart(self, down_s: float = 0.0) -> None:
        """Close the engine, let `down_s` pass with none, and open a new instance over the same home."""

    @abstractmethod
    async def lose_device(self) -> None:
        """Some device of some node is gone; return once the engine knows."""

    @abstractmethod
    async def restore_devices(self) -> None:
        """What was lost is there again; return once the engine knows."""

    async def launch(self, gang: Gang) -> GangStatus:
        """Launch it, and wait until its ranks were let go. Raises LaunchFailed where they never were."""
        status = await self.engine.launch(gang)
        if status.phase not in BEFORE_RUNNING:
            return status
        async with asyncio.timeout(60):
            async for status in self.engine.changes():
                if status.name == gang.name and status.phase not in BEFORE_RUNNING:
                    break
        if status.fault is not None and status.reason is not None:
            raise LaunchFailed(status.reason.text, fault=status.fault)
        return status

    async def log(self, name: str, rank: int = 0) -> str:
        """The whole log of a rank as it is now."""
        parts: list[bytes] = []
        offset = 0
        while chunk := await self.engine.read(name, rank, "log", offset):
            if not chunk.data:
                break
            parts.append(chunk.data)
            offset = chunk.next_offset
        return b"".join(parts).decode()


def exits(status: GangStatus) -> dict[int, tuple[int | None, int | None, bool]]:
    """(code, signal, stopped) of every rank."""
    found = {}
    for rank in status.ranks:
        assert rank.exit is not None, rank
        found[rank.rank] = (rank.exit.code, rank.exit.signal, rank.exit.stopped)
    return found


def _devices(inventory: Inventory) -> set[tuple[str, str]]:
    return {(node.name, device.id) for node in inventory.nodes for device in node.devices}


class EngineConformance:
    """Subclass it with a `kit` fixture. Every test uses the protocol alone."""

    # --- what there is ---

    async def test_inventory_names_devices_uniquely_and_keeps_them_over_a_restart(self, kit: EngineKit) -> None:
        before = (await kit.engine.inventory()).nodes
        assert before
        assert len({node.name for node in before}) == len(before)
        for node in before:
            ids = [device.id for device in node.devices]
            assert len(set(ids)) == len(ids)
            assert node.capacity().accelerator_count == len(ids)
            assert node.cpu_milli > 0
            assert node.memory_bytes > 0
        await kit.restart()
        assert (await kit.engine.inventory()).nodes == before

    async def test_following_the_nodes_begins_with_the_present(self, kit: EngineKit) -> None:
        for _ in range(2):
            assert await anext(kit.engine.nodes()) == await kit.engine.inventory()

    async def test_everyone_who_follows_hears_of_a_device_that_goes_and_of_its_return(self, kit: EngineKit) -> None:
        whole = await kit.engine.inventory()
        followers = [kit.engine.nodes() for _ in range(2)]
        assert [await anext(each) for each in followers] == [whole, whole]
        await kit.lose_device()
        smaller = await kit.engine.inventory()
        assert _devices(smaller) < _devices(whole)
        assert len(_devices(smaller)) == len(_devices(whole)) - 1
        assert [await anext(each) for each in followers] == [smaller, smaller]
        await kit.restore_devices()
        assert [await anext(each) for each in followers] == [whole, whole]

    async def test_a_slow_follower_hears_what_is_true_last(self, kit: EngineKit) -> None:
        follower = kit.engine.nodes()
        whole = await anext(follower)
        await kit.lose_device()
        await kit.restore_devices()
        await kit.lose_device()
        smaller = await anext(follower)
        assert smaller == await kit.engine.inventory() != whole

    async def test_following_the_nodes_ends_with_the_engine(self, kit: EngineKit) -> None:
        follower = kit.engine.nodes()
        await anext(follower)
        await kit.engine.close()
        assert [each async for each in follower] == []
        await kit.restart()

    async def test_a_gang_runs_on_without_a_device_that_others_had(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", RunForever()))
        await kit.lose_device()
        adopted = await kit.launch(kit.gang("a.1.run", RunForever()))
        assert adopted.phase is Phase.RUNNING
        await kit.engine.stop("a.1.run")
        assert (await kit.settle("a.1.run")).ended

    async def test_every_absent_capability_says_what_it_costs(self, kit: EngineKit) -> None:
        for capability in kit.engine.capabilities():
            assert capability.name
            assert capability.detail
            assert capability.available or capability.consequence, capability

    # --- launch and end ---

    async def test_a_rank_that_succeeds_ends_ok(self, kit: EngineKit) -> None:
        launched = await kit.launch(kit.gang("a.1.run", Succeed()))
        assert launched.phase in (Phase.RUNNING, Phase.ENDED)
        status = await kit.settle("a.1.run")
        assert status.phase is Phase.ENDED
        assert status.ended
        (rank,) = status.ranks
        assert rank.exit is not None
        assert rank.exit.ok
        assert not rank.exit.lost
        assert not rank.exit.stopped
        assert rank.node
        assert rank.started_at is not None
        assert rank.ended_at is not None
        assert rank.started_at <= rank.ended_at

    async def test_an_exit_code_is_reported(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Fail(7)))
        assert exits(await kit.settle("a.1.run")) == {0: (7, None, False)}

    async def test_launching_a_name_again_adopts_it(self, kit: EngineKit) -> None:
        gang = kit.gang("a.1.run", Print(("once",), after_s=0.3))
        first = await kit.launch(gang)
        second = await kit.launch(gang)
        assert second.ranks[0].pid == first.ranks[0].pid
        assert second.ranks[0].started_at == first.ranks[0].started_at
        await kit.settle("a.1.run")
        third = await kit.launch(gang)
        assert third.phase is Phase.ENDED
        assert await kit.log("a.1.run") == "once\n"

    async def test_launching_a_name_twice_at_once_starts_it_once(self, kit: EngineKit) -> None:
        gang = kit.gang("a.1.run", Print(("once",)), ranks=2)
        await asyncio.gather(kit.launch(gang), kit.launch(gang))
        await kit.settle("a.1.run")
        assert [await kit.log("a.1.run", rank) for rank in (0, 1)] == ["once\n", "once\n"]

    async def test_a_gang_runs_every_rank(self, kit: EngineKit) -> None:
        by_rank = {rank: Print((f"rank {rank}",)) for rank in range(3)}
        await kit.launch(kit.gang("a.1.run", Succeed(), ranks=3, by_rank=by_rank))
        status = await kit.settle("a.1.run")
        assert exits(status) == dict.fromkeys(range(3), (0, None, False))
        assert [await kit.log("a.1.run", rank) for rank in range(3)] == ["rank 0\n", "rank 1\n", "rank 2\n"]

    async def test_when_one_rank_fails_the_others_are_stopped(self, kit: EngineKit) -> None:
        gang = kit.gang("a.1.run", RunForever(), ranks=3, by_rank={1: Fail(3)})
        await kit.launch(gang)
        status = await kit.settle("a.1.run")
        found = exits(status)
        assert found[1] == (3, None, False)
        assert found[0] == found[2] == (None, signal.SIGTERM, True)

    async def test_when_one_rank_succeeds_the_others_go_on(self, kit: EngineKit) -> None:
        gang = kit.gang("a.1.run", Succeed(), ranks=2, by_rank={1: Print(("late",), after_s=0.3)})
        await kit.launch(gang)
        status = await kit.settle("a.1.run")
        assert exits(status) == {0: (0, None, False), 1: (0, None, False)}
        assert await kit.log("a.1.run", 1) == "late\n"

    async def test_a_missing_command_is_the_users_fault(self, kit: EngineKit) -> None:
        with pytest.raises(LaunchFailed) as failure:
            await kit.launch(kit.gang("a.1.run", Missing()))
        assert failure.value.fault is Fault.USER
        status = await kit.engine.status("a.1.run")
        assert status is None or status.ended

    async def test_a_rank_that_cannot_start_rolls_the_whole_gang_back(self, kit: EngineKit) -> None:
        gang = kit.gang("a.1.run", Print(("ran",)), ranks=3, by_rank={2: Missing()})
        with pytest.raises(LaunchFailed) as failure:
            await kit.launch(gang)
        assert failure.value.fault is Fault.USER
        status = await kit.engine.status("a.1.run")
        assert status is None or (status.ended and status.reason is not None)
        with pytest.raises(LaunchFailed) as again:
            await kit.launch(gang)
        assert again.value.fault is Fault.USER
        assert [await kit.log("a.1.run", rank) for rank in (0, 1)] == ["", ""]

    # --- stop, signal, notify ---

    async def test_stop_ends_a_rank_by_sigterm(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", RunForever(), ranks=2))
        await kit.in_effect("a.1.run")
        await kit.engine.stop("a.1.run", reason="the test wants it")
        status = await kit.settle("a.1.run")
        assert exits(status) == dict.fromkeys((0, 1), (None, signal.SIGTERM, True))

    async def test_stop_kills_what_ignores_sigterm(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", IgnoreTerm(), grace_s=60))
        await kit.in_effect("a.1.run")
        await kit.engine.stop("a.1.run", grace_s=0.2)
        assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGKILL, True)}

    async def test_a_second_stop_may_shorten_the_grace(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", IgnoreTerm(), grace_s=600))
        await kit.in_effect("a.1.run")
        await kit.engine.stop("a.1.run")
        await kit.engine.stop("a.1.run", grace_s=0.1)
        assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGKILL, True)}

    async def test_a_later_stop_never_lengthens_the_grace(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", IgnoreTerm(), grace_s=600))
        await kit.in_effect("a.1.run")
        await kit.engine.stop("a.1.run", grace_s=0.5)
        await kit.engine.stop("a.1.run", grace_s=600)
        assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGKILL, True)}

    async def test_a_rank_with_the_hooks_may_leave_by_itself(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Cooperate(75), grace_s=60))
        await kit.in_effect("a.1.run")
        await kit.engine.stop("a.1.run")
        assert exits(await kit.settle("a.1.run")) == {0: (75, None, True)}

    async def test_a_notice_reaches_the_ranks_without_stopping_them(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Cooperate(0), ranks=2))
        await kit.in_effect("a.1.run")
        await kit.engine.notify("a.1.run", {"reason": "checkpoint"})
        assert exits(await kit.settle("a.1.run")) == dict.fromkeys((0, 1), (0, None, False))

    async def test_a_signal_reaches_the_main_process(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", RunForever()))
        await kit.in_effect("a.1.run")
        await kit.engine.signal("a.1.run", signal.SIGTERM)
        assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGTERM, False)}

    async def test_unknown_and_ended_gangs_are_ignored(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Succeed()))
        ended = await kit.settle("a.1.run")
        for name in ("a.1.run", "nobody.1.run"):
            await kit.engine.stop(name)
            await kit.engine.signal(name, signal.SIGTERM)
            await kit.engine.notify(name, {"reason": "checkpoint"})
        assert await kit.engine.status("a.1.run") == ended
        assert await kit.engine.status("nobody.1.run") is None

    # --- watching ---

    async def test_changes_go_forward_and_never_skip_the_end(self, kit: EngineKit) -> None:
        early = kit.engine.changes()
        await kit.launch(kit.gang("a.1.run", Succeed(0.1), ranks=2))
        late = kit.engine.changes()
        ended = await kit.settle("a.1.run")
        order = [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.ENDED]
        for watcher in (early, late, kit.engine.changes()):
            seen = []
            async with asyncio.timeout(30):
                async for status in watcher:
                    if status.name == "a.1.run":
                        seen.append(status)
                        if status.ended:
                            break
            phases = [order.index(status.phase) for status in seen]
            assert phases == sorted(phases)
            assert seen[-1] == ended

    # --- logs ---

    async def test_a_log_is_read_by_offset(self, kit: EngineKit) -> None:
        lines = tuple(f"line {number}" for number in range(50))
        await kit.launch(kit.gang("a.1.run", Print(lines)))
        await kit.settle("a.1.run")
        whole = "".join(f"{line}\n" for line in lines).encode()
        offset, collected = 0, b""
        while True:
            chunk = await kit.engine.read("a.1.run", 0, "log", offset, limit=7)
            assert chunk.offset == offset
            assert chunk.next_offset == offset + len(chunk.data)
            assert len(chunk.data) <= 7
            collected += chunk.data
            offset = chunk.next_offset
            if chunk.ended:
                break
            assert chunk.data
        assert collected == whole
        for last in (1, 10, len(whole), len(whole) + 100):
            chunk = await kit.engine.read("a.1.run", 0, "log", -last)
            assert (chunk.data, chunk.offset) == (whole[-last:], max(0, len(whole) - last))
        times = await kit.engine.log_times("a.1.run", 0)
        assert times[-1][0] == len(whole)
        assert list(times) == sorted(times)
        assert [at for _, at in times] == sorted(at for _, at in times)
        past = await kit.engine.read("a.1.run", 0, "log", len(whole) + 5)
        assert past.data == b""
        assert past.ended

    async def test_a_stream_of_a_running_rank_has_not_ended(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", RunForever()))
        assert all(size == 0 for size, _ in await kit.engine.log_times("a.1.run", 0))
        chunk = await kit.engine.read("a.1.run", 0, "metrics", 0)
        assert (chunk.data, chunk.next_offset, chunk.ended) == (b"", 0, False)
        await kit.engine.stop("a.1.run", grace_s=0)
        await kit.settle("a.1.run")
        assert (await kit.engine.read("a.1.run", 0, "metrics", 0)).ended

    @pytest.mark.few(count=2)
    @pytest.mark.parametrize("stream", ["file:../../etc/passwd", "file:/etc/passwd", "file:", "unheard-of"])
    async def test_unknown_and_escaping_streams_are_not_found(self, kit: EngineKit, stream: str) -> None:
        await kit.launch(kit.gang("a.1.run", Succeed()))
        await kit.settle("a.1.run")
        with pytest.raises(NotFound):
            await kit.engine.read("a.1.run", 0, stream, 0)

    async def test_unknown_gangs_and_ranks_have_no_streams(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Succeed()))
        await kit.settle("a.1.run")
        with pytest.raises(NotFound):
            await kit.engine.read("a.1.run", 1, "log", 0)
        with pytest.raises(NotFound):
            await kit.engine.read("nobody.1.run", 0, "log", 0)
        with pytest.raises(NotFound):
            await kit.engine.log_times("a.1.run", 1)
        with pytest.raises(NotFound):
            await kit.engine.log_times("nobody.1.run", 0)

    # --- restarts ---

    async def test_a_running_gang_survives_a_restart(self, kit: EngineKit) -> None:
        launched = await kit.launch(kit.gang("a.1.run", RunForever(), ranks=2))
        await kit.in_effect("a.1.run")
        await kit.restart()
        found = (await kit.engine.gangs())["a.1.run"]
        assert found.phase is Phase.RUNNING
        assert [rank.pid for rank in found.ranks] == [rank.pid for rank in launched.ranks]
        assert (await kit.launch(kit.gang("a.1.run", RunForever(), ranks=2))).ranks == found.ranks
        await kit.engine.stop("a.1.run")
        assert exits(await kit.settle("a.1.run")) == dict.fromkeys((0, 1), (None, signal.SIGTERM, True))

    async def test_an_end_while_no_engine_was_there_is_seen(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Fail(9, after_s=0.2)))
        await kit.restart(down_s=1.0)
        assert exits(await kit.settle("a.1.run")) == {0: (9, None, False)}

    async def test_a_late_watcher_hears_of_ends_before_the_restart(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Fail(9)))
        await kit.settle("a.1.run")
        await kit.restart()
        async with asyncio.timeout(30):
            async for status in kit.engine.changes():
                if status.name == "a.1.run" and status.ended:
                    assert exits(status) == {0: (9, None, False)}
                    break

    async def test_a_log_goes_on_over_a_restart(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Print(("one", "two"), after_s=0.3)))
        await kit.in_effect("a.1.run")
        first = await kit.engine.read("a.1.run", 0, "log", 0, limit=4)
        await kit.restart()
        await kit.settle("a.1.run")
        rest = await kit.engine.read("a.1.run", 0, "log", first.next_offset)
        assert first.data + rest.data == b"one\ntwo\n"

    # --- forget and sweep ---

    async def test_ended_gangs_are_known_until_forgotten(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", Print(("kept",))))
        ended = await kit.settle("a.1.run")
        assert (await kit.engine.gangs())["a.1.run"] == ended
        await kit.engine.forget("a.1.run")
        await kit.engine.forget("a.1.run")
        assert await kit.engine.status("a.1.run") is None
        assert "a.1.run" not in await kit.engine.gangs()
        assert await kit.log("a.1.run") == "kept\n"
        await kit.restart()
        assert "a.1.run" not in await kit.engine.gangs()
        assert await kit.log("a.1.run") == "kept\n"

    async def test_forgetting_a_running_gang_stops_it(self, kit: EngineKit) -> None:
        await kit.launch(kit.gang("a.1.run", IgnoreTerm(), grace_s=600))
        await kit.in_effect("a.1.run")
        await kit.engine.forget("a.1.run")
        assert await kit.engine.status("a.1.run") is None
        assert await kit.engine.sweep(frozenset()) == ()

    async def test_a_sweep_ends_what_nobody_knows_and_nothing_else(self, kit: EngineKit) -> None:
        for name in ("known.1.run", "orphan.1.run"):
            await kit.launch(kit.gang(name, RunForever()))
        assert await kit.engine.sweep(frozenset({"known.1.run"})) == ("orphan.1.run",)
        known = await kit.engine.status("known.1.run")
        assert known is not None
        assert known.phase is Phase.RUNNING
        orphan = await kit.engine.status("orphan.1.run")
        assert orphan is None or orphan.ended
        assert await kit.engine.sweep(frozenset({"known.1.run"})) == ()
        await kit.engine.stop("known.1.run", grace_s=0)
        await kit.settle("known.1.run")
