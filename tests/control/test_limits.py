"""What a job gets that does not say what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.lifecycle import ErrorCode
from shoal.control.attempts import phases
from shoal.control.jobs import transitions
from shoal.control.limits import JobLimits, complete, default_memory, rank_limits
from shoal.core import Conflict, Device, Node, Quota
from shoal.engine import Exit, GangStatus, Limits, Phase, RankStatus
from shoal.engine.simulated import Script
from shoal.serve.manifest import ServiceManifest

from .simulation import World, manifest, nodes

GIB, MIB = 1 << 30, 1 << 20
LAPTOP = Node("laptop", tuple(Device(f"cpu{n}", "cpu", n) for n in range(4)), 4000, 16 * GIB)
SERVER = Node("server", tuple(Device(f"gpu{n}", "h100", n) for n in range(8)), 64_000, 1024 * GIB)


def memory(cpus: float, accelerators: int = 0, kind: str = "any", at: tuple[Node, ...] = (LAPTOP,)) -> int:
    found = default_memory(cpus, kind, accelerators, (node.capacity() for node in at))
    assert isinstance(found, int)  # bytes
    return found


def test_a_core_comes_with_a_quarter_of_its_part_of_the_memory() -> None:
    assert memory(4) == int(16 * GIB * 0.9 / 4) // MIB * MIB
    assert memory(0, accelerators=2) == int(16 * GIB * 0.9 / 8) // MIB * MIB
    assert memory(1, accelerators=2) == memory(0, accelerators=2)  # a slot is a core under another name
    assert memory(1) == GIB  # a quarter would be less


def test_plain_jobs_on_all_cores_leave_most_of_the_memory() -> None:
    large = replace(LAPTOP, cpu_milli=16_000, memory_bytes=256 * GIB)
    assert 16 * memory(1, at=(large,)) <= 256 * GIB // 4
    small = replace(LAPTOP, memory_bytes=2 * GIB)
    assert 4 * memory(1, at=(small,)) <= 2 * GIB  # never more than goes with the cores


def test_an_accelerator_and_its_cores_come_with_theirs() -> None:
    assert memory(8, 1, at=(SERVER,)) == int(1024 * GIB * 0.9 / 8) // MIB * MIB
    assert memory(0, 1, at=(SERVER,)) == memory(8, 1, at=(SERVER,)) // 2 // MIB * MIB
    assert memory(8, at=(SERVER,)) == memory(8, 1, at=(SERVER,)) // 8 // MIB * MIB  # a plain job


def test_little_is_never_nothing() -> None:
    assert memory(0) == memory(0.01) == 512 * MIB
    assert memory(0, at=(replace(LAPTOP, memory_bytes=GIB),)) == 128 * MIB


def test_the_smallest_node_that_has_it_counts_and_one_that_has_not_does_not() -> None:
    both = (LAPTOP, SERVER)
    assert memory(1, at=both) == min(memory(1), memory(1, at=(SERVER,)))
    assert memory(1, 1, "h100", both) == memory(1, 1, at=(SERVER,))
    assert memory(8, at=both) == memory(8, at=(SERVER,))
    assert memory(65, at=both) == memory(1, at=()) == GIB


def test_what_a_node_has_none_of_is_no_part_of_it() -> None:
    bare = replace(SERVER, devices=())
    assert memory(16, at=(bare,)) == int(1024 * GIB * 0.9 / 4 / 4) // MIB * MIB
    assert memory(1, 1, at=(bare,)) == GIB  # as on a node that nobody knows
    assert memory(0, 1, at=(replace(SERVER, cpu_milli=0),)) == int(1024 * GIB * 0.9 / 8 / 2) // MIB * MIB
    assert memory(0, 8, at=(SERVER,)) == int(1024 * GIB * 0.9 / 2) // MIB * MIB
    assert memory(1, at=(replace(LAPTOP, memory_bytes=0),)) == GIB


@given(
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 8)), min_size=1, max_size=40),
    st.sampled_from([SERVER, replace(SERVER, cpu_milli=12_000), replace(SERVER, devices=SERVER.devices[:1])]),
)
def test_what_fits_by_cores_and_accelerators_fits_by_memory(asked: list[tuple[int, int]], node: Node) -> None:
    cores, devices, taken = node.cpu_milli // 1000, len(node.devices), 0
    for cpus, accelerators in asked:
        if (cpus, accelerators) != (0, 0) and cpus <= cores and accelerators <= devices:
            cores, devices = cores - cpus, devices - accelerators
            taken += memory(cpus, accelerators, at=(node,))
    assert taken <= node.memory_bytes


def completed(quota: Quota | None = None, limits: JobLimits | None = None, **fields: object) -> tuple[float, int]:
    found = complete(manifest(**fields), limits or JobLimits(), quota or Quota(), (LAPTOP.capacity(),)).resources
    assert found.cpus is not None
    assert isinstance(found.memory, int)
    return found.cpus, found.memory


def test_an_accelerator_of_a_type_comes_with_its_part_of_a_node_that_has_it() -> None:
    asked = manifest(resources={"accelerators": {"type": "h100", "count": 1}})
    found = complete(asked, JobLimits(), Quota(), (LAPTOP.capacity(), SERVER.capacity())).resources
    assert (found.cpus, found.memory) == (1.0, memory(1, 1, at=(SERVER,)))


def test_what_a_manifest_says_stays() -> None:
    said = manifest(resources={"cpus": 0, "memory": "64MiB"})
    assert complete(said, JobLimits(default_cpus=3, default_memory_bytes=GIB), Quota(), (LAPTOP.capacity(),)) is said
    assert completed(resources={"memory": "64MiB"}) == (1.0, 64 * MIB)
    assert completed(resources={"cpus": 2}) == (2.0, memory(2))


def test_a_tenants_default_beats_the_servers_which_beats_the_nodes() -> None:
    assert completed() == (1.0, memory(1))
    limits = JobLimits(default_cpus=0.5, default_memory_bytes=2 * GIB)
    assert completed(limits=limits) == (0.5, 2 * GIB)
    tenant = Quota(default_cpu_milli=2000, default_memory_bytes=3 * GIB)
    assert completed(tenant, limits) == (2.0, 3 * GIB)
    assert completed(Quota(default_cpu_milli=0), limits) == (0.0, 2 * GIB)


def test_a_default_is_no_more_than_the_tenants_quota_lets_run() -> None:
    assert completed(Quota(memory_bytes=256 * MIB)) == (1.0, 256 * MIB)
    assert completed(Quota(memory_bytes=GIB), ranks=2) == (1.0, 512 * MIB)
    assert completed(Quota(memory_bytes=GIB), ranks={"min": 1, "max": 4}) == (1.0, 256 * MIB)
    assert completed(Quota(memory_bytes=8 * GIB, cpu_milli=8000)) == (1.0, GIB)  # eight such jobs at once
    assert completed(Quota(memory_bytes=64 * GIB)) == (1.0, memory(1))
    assert completed(Quota(memory_bytes=256 * MIB + 4096)) == (1.0, 256 * MIB)  # whole MiB
    assert completed(Quota(memory_bytes=4096)) == (1.0, MIB)


def test_a_service_has_a_core_for_each_thread_of_its_widest_model() -> None:
    model = {"name": "m", "source": "/m.onnx", "threads": 2}
    service = ServiceManifest.model_validate({"name": "s", "models": [model]})
    assert service.with_cores().with_cores() == service.with_cores()
    service = service.with_cores()
    found = complete(service, JobLimits(), Quota(), (LAPTOP.capacity(),))
    assert found.resources is not None
    assert (found.resources.cpus, found.resources.memory) == (2.0, memory(2))
    assert found.resources_per_replica().memory_bytes == memory(2)
    assert service.resources_per_replica().cpu_milli == 2000
    within = complete(service, JobLimits(), Quota(memory_bytes=GIB), (LAPTOP.capacity(),)).resources
    assert within is not None
    assert within.memory == GIB


def test_a_rank_may_fill_half_the_disk_unless_told_otherwise() -> None:
    assert rank_limits(JobLimits(), 100 * GIB + 1, 13) == Limits(4096, 65_536, GIB, 50 * GIB, GIB, 6)
    assert rank_limits(JobLimits(7, None, 9, 64, 5, 6, 8, 7), 100 * GIB, 13) == Limits(9, 64, 5, 6, 8, 7)


def test_an_end_at_a_limit_is_the_users_fault_and_says_which() -> None:
    end = Exit(signal=9, limit="disk", detail="its files took 3 MiB on disk, over its 2 MiB")
    status = GangStatus("j.1.run", Phase.ENDED, (RankStatus(0, Phase.ENDED, "n", exit=end),))
    found = transitions.read_end(status, (), phase="run")
    assert found.code is ErrorCode.OVER_LIMIT
    assert found.message == "the process was killed: its files took 3 MiB on disk, over its 2 MiB"


@pytest.mark.virtual_time
async def test_a_job_is_stored_with_what_it_gets_and_runs_within_it(tmp_path: Path) -> None:
    gangs = []

    def behaviour(gang: phases.Gang) -> Script:
        gangs.append(gang)
        return Script(run_s=1.0)

    world = World.make(tmp_path, nodes(1, 4), behaviour)
    plane = await world.start()
    await plane.put_tenant("ada", actor="admin")
    data = {"inputs": [{"from": "/a", "to": "b"}], "outputs": [{"from": "c", "to": "/d"}]}
    first, _ = await plane.submit(manifest(**data), tenant="ada", actor="ada", idempotency_key="k")
    expected = default_memory(1.0, "any", 0, (node.capacity() for node in nodes(1, 4)))
    assert first.resources.memory_bytes == expected
    assert f'"cpus":1.0,"memory":{expected}' in first.manifest
    await world.until(lambda: plane.job(first.id).state.terminal)
    assert [gang.memory_bytes for gang in gangs] == [expected] * 3
    assert [gang.cpu_milli for gang in gangs] == [1000] * 3
    assert all(gang.limits.processes == 4096 and gang.limits.disk_bytes > 0 for gang in gangs)
    # The key still means this job after the default was changed, and no other.
    await plane.put_tenant("ada", actor="admin", quota=Quota(default_memory_bytes=GIB))
    again, created = await plane.submit(manifest(**data), tenant="ada", actor="ada", idempotency_key="k")
    assert (again.id, created) == (first.id, False)
    with pytest.raises(Conflict):
        await plane.submit(manifest(), tenant="ada", actor="ada", idempotency_key="k")
    later, _ = await plane.submit(manifest(), tenant="ada", actor="ada")
    assert later.resources.memory_bytes == GIB
    await world.kill()


@pytest.mark.virtual_time
async def test_a_stage_that_moves_data_has_what_it_needs_beside_a_small_job(tmp_path: Path) -> None:
    gangs = []

    def behaviour(gang: phases.Gang) -> Script:
        gangs.append(gang)
        return Script(run_s=1.0)

    world = World.make(tmp_path, nodes(1, 4), behaviour)
    plane = await world.start()
    await plane.put_tenant("ada", actor="admin")
    asked = manifest(inputs=[{"from": "/a", "to": "b"}], resources={"cpus": 0, "memory": "32MiB"})
    job, _ = await plane.submit(asked, tenant="ada", actor="ada")
    await world.until(lambda: plane.job(job.id).state.terminal)
    assert [(gang.cpu_milli, gang.memory_bytes) for gang in gangs] == [(0, 256 * MIB), (0, 32 * MIB)]
    await world.kill()
