"""The memory of a job that asks for none: what earlier jobs of its name needed, and where that is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from shoal.contract.lifecycle import ErrorCode, JobState, Outcome
from shoal.contract.manifest import MemoryDefault, parse_manifest
from shoal.contract.records import JobEnd
from shoal.control.jobs.memory_use import MemoryUse, Needed, need, out_of_memory
from shoal.control.limits import JobLimits, complete
from shoal.core import Quota, Resources
from shoal.engine import Gang
from shoal.engine.simulated import Script

from .simulation import World, manifest, nodes

GIB, MIB = 1 << 30, 1 << 20
NODE = Resources({"cpu": 2}, cpu_milli=4000, memory_bytes=16 * GIB)


def end(used: int, *, limit: int = 4 * GIB, outcome: Outcome = Outcome.SUCCEEDED, name: str = "train",
        code: ErrorCode | None = None, command: Sequence[str] = manifest().command) -> JobEnd:  # fmt: skip
    return JobEnd("ada", name, command, Resources(memory_bytes=limit), outcome, code, used)


def test_what_an_end_says_of_the_next_job() -> None:
    assert need(end(GIB)) == int(1.5 * GIB)
    assert need(end(GIB + 1)) == int(1.5 * GIB) + MIB  # whole MiB, rounded up
    assert need(end(4 * GIB)) == need(end(int(3.9 * GIB))) == 4 * GIB  # the kernel kept files up to the limit
    assert need(end(3 * GIB)) == int(4.5 * GIB)
    assert need(end(GIB, limit=0)) == int(1.5 * GIB)
    assert need(end(4 * GIB, outcome=Outcome.FAILED, code=ErrorCode.OUT_OF_MEMORY)) == 8 * GIB
    assert need(end(0, limit=0, outcome=Outcome.FAILED, code=ErrorCode.OUT_OF_MEMORY)) is None


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.SUCCEEDED])
def test_one_that_did_not_come_to_its_end_says_nothing(outcome: Outcome) -> None:
    assert need(end(GIB, outcome=outcome)) is None
    assert need(end(0)) is None


def test_the_greatest_need_of_the_last_ten_counts() -> None:
    use, asked = MemoryUse(), manifest(name="train")
    use.load([end(3 * GIB), *[end(GIB)] * 9])
    assert use.of("ada", asked) == Needed(int(4.5 * GIB), 10)
    use.load([end(GIB)])
    assert use.of("ada", asked) == Needed(int(1.5 * GIB), 10)
    assert use.of("bob", asked) is use.of("ada", manifest(name="other")) is None


def test_jobs_of_one_kind_differ_in_long_options_only() -> None:
    use = MemoryUse()
    use.load([end(GIB, command=["python3", "train.py", "--lr", "1"])])

    def known(*command: str) -> bool:
        return use.of("ada", manifest(name="train", command=list(command))) is not None

    assert known("python3", "train.py", "--lr", "2", "more")
    assert known("python3", "train.py")
    assert not known("python3", "other.py", "--lr", "1")
    assert not known("python3", "train.py", "100")
    assert not known("python3")


def test_names_that_ended_long_ago_are_forgotten() -> None:
    use = MemoryUse()
    use.load([end(GIB, name="first"), end(GIB, name="again")])
    use.load(end(GIB, name=f"n{number}") for number in range(4094))
    use.load([end(GIB, name="again"), end(GIB, name="one-more")])
    assert use.of("ada", manifest(name="first")) is None
    assert use.of("ada", manifest(name="again")) is not None


def completed(needed: int | None, quota: Quota | None = None, ends: int = 3, **asked: object) -> tuple[object, object]:
    known = None if needed is None else Needed(needed, ends)
    found = complete(manifest(**asked), JobLimits(), quota or Quota(), (NODE,), known).resources
    assert found is not None
    return found.memory, found.memory_from


def test_what_is_known_beats_the_share_and_nothing_else() -> None:
    assert completed(None) == (GIB, MemoryDefault.SHARE)
    assert completed(3 * GIB) == (3 * GIB, MemoryDefault.EARLIER)
    assert completed(600 * MIB) == (600 * MIB, MemoryDefault.EARLIER)
    assert completed(20 * MIB) == (512 * MIB, MemoryDefault.EARLIER)
    assert completed(600 * MIB, ends=2) == (GIB, MemoryDefault.SHARE)
    assert completed(3 * GIB, ends=1) == (3 * GIB, MemoryDefault.EARLIER)
    assert completed(64 * GIB) == (int(16 * GIB * 0.9) // MIB * MIB, MemoryDefault.EARLIER)  # it has to fit somewhere
    assert completed(3 * GIB, Quota(memory_bytes=2 * GIB)) == (2 * GIB, MemoryDefault.EARLIER)
    assert completed(3 * GIB, Quota(default_memory_bytes=GIB)) == (GIB, MemoryDefault.TENANT)
    assert completed(3 * GIB, resources={"memory": "64MiB"}) == (64 * MIB, None)


def test_a_manifest_cannot_say_whose_default_its_memory_is() -> None:
    assert completed(None, resources={"memory": "64MiB", "memory_from": "tenant"}) == (64 * MIB, None)
    assert completed(None, resources={"cpus": 1, "memory": "64MiB", "memory_from": "tenant"}) == (64 * MIB, None)
    assert completed(None, resources={"memory_from": "tenant"}) == (GIB, MemoryDefault.SHARE)


def test_the_message_says_the_limit_whose_it_was_and_what_to_write() -> None:
    asked = manifest(resources={"memory": "1GiB"}).resources
    assert out_of_memory("killed", asked) == (
        "killed; the limit was 1GiB, as its manifest says: write `resources: {memory: 2GiB}` in the manifest, or give "
        "`--memory 2GiB`"
    )
    chosen = complete(manifest(), JobLimits(), Quota(), (NODE,)).resources
    assert "the limit was 1GiB, the default for what else it asks for: write" in out_of_memory("killed", chosen)
    assert out_of_memory("killed", None) == "killed"


@pytest.mark.virtual_time
async def test_a_job_that_dies_of_a_default_says_so_and_the_next_one_gets_more(tmp_path: Path) -> None:
    def behaviour(gang: Gang) -> Script:
        return Script(memory_bytes=5 * GIB) if gang.memory_bytes >= 6 * GIB else Script(oom=True)

    world = World.make(tmp_path, nodes(1, 1), behaviour)
    plane = await world.start()
    await plane.put_tenant("ada", actor="admin")

    async def run() -> tuple[str, int]:
        job, _ = await plane.submit(manifest(name="train"), tenant="ada", actor="ada")
        await world.until(lambda: plane.job(job.id).state.terminal)
        return plane.job(job.id).message, job.resources.memory_bytes

    message, first = await run()
    limit = f"{first >> 20}MiB" if first % GIB else f"{first >> 30}GiB"
    assert f"was killed; the limit was {limit}, the default for what else it asks for: write" in message
    sizes = [first]
    while message != "done":
        message, size = await run()
        sizes.append(size)
    assert sizes == [first << times for times in range(len(sizes))]
    assert sizes[-1] >= 6 * GIB > sizes[-2]
    await world.kill()

    plane = await world.start()  # a server knows what the one before it learned
    again, _ = await plane.submit(manifest(name="train"), tenant="ada", actor="ada")
    stored = parse_manifest(again.manifest).resources
    assert (stored.memory, stored.memory_from) == (max(sizes[-1], int(7.5 * GIB)), MemoryDefault.EARLIER)
    await world.kill()


@pytest.mark.virtual_time
async def test_who_waits_for_room_is_told_of_the_default(tmp_path: Path) -> None:
    world = World.make(tmp_path, nodes(1, 1), lambda gang: Script(run_s=1000))
    plane = await world.start()
    await plane.put_tenant("ada", actor="admin")
    large, _ = await plane.submit(manifest(resources={"cpus": 0, "memory": "63.5GiB"}), tenant="ada", actor="ada")
    await world.until(lambda: plane.job(large.id).state is JobState.RUNNING)
    default, _ = await plane.submit(manifest(), tenant="ada", actor="ada")
    asks, _ = await plane.submit(manifest(resources={"memory": "2GiB"}), tenant="ada", actor="ada")
    told = await plane.explain(default.id)
    assert [cause.reason.code for cause in told.causes][-1] == "default-memory"
    assert "is the default for what else it asks for; if it needs less, write" in told.causes[-1].reason.text
    assert "default-memory" not in [cause.reason.code for cause in (await plane.explain(asks.id)).causes]
    await world.kill()
