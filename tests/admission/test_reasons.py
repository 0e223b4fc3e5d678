"""The sentences that people read."""

from __future__ import annotations

import pytest
import typer

from shoal.admission import Pending, decide, explain, reasons
from shoal.admission.quota import Limit
from shoal.admission.reservation import Reservation
from shoal.admission.snapshot import CPU_POOL, Need
from shoal.admission.types import Claim
from shoal.cli.app import app
from shoal.core import ANY, Quota, Resources, Share, Tenant

from .cases import GIB, NOW, G, carry_out, decide_on, devices, index_of, job, need, node, nodes, running


@pytest.mark.parametrize(
    ("need", "free", "text"),
    [
        (Need("a100", 8, (), 0, 0), 5, "needs 8 a100 on one node, 5 free"),
        (Need("a100", 1, (), 4000, 0), 3, "needs 1 a100, no node with 1 a100 free has 4 cores free"),
        (Need("a100", 1, (), 1000, GIB), 3, "needs 1 a100, no node with 1 a100 free has 1 core and 1 GiB free"),
        (Need("a100", 2, (("h100", 1),), 0, 0), 2,
         "needs 2 a100 and 1 h100 on one node, no node with 2 a100 free has 1 h100 free"),
        (Need("cpu", 1, (), 0, 0), 1, "needs 1 cpu slot, none is open to it now"),
        (Need("cpu", 2, (), 0, 0), 1, "needs 2 cpu slots on one node, 1 free"),
        (Need("a100", 1, (), 0, 0, Share.BEST_EFFORT, 20 * GIB), 1,
         "needs a best-effort share of 1 a100 (20 GiB), "
         "no node with a place on 1 a100 has 20 GiB of device memory free"),
        (Need(CPU_POOL, 0, (), 2000, 0), 0, "needs 2 cores on one node, no node has 2 cores free"),
    ],
)  # fmt: skip
def test_what_is_not_free_is_named(need: Need, free: int, text: str) -> None:
    assert reasons.shape(need, 1, free, 0).text == f"waits: {text}"


def test_a_job_blocked_by_cores_beside_a_free_device_is_told_so() -> None:
    held = [running("r", {"n0": devices(0)}, cores=4)]
    waiting = job("j", resources=Resources({"a100": 1}, 2000))
    told = explain(index_of([node("n0", {"a100": 2}, cores=4)], [waiting], held).snapshot(NOW), "j")
    assert told.summary == "waits: needs 1 a100, no node with 1 a100 free has 2 cores free; starts when job r ends"


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("accelerators", 1, "1 accelerator"), ("accelerators", 2, "2 accelerators"), ("accelerators.a100", 1, "1 a100"),
        ("cpu_milli", 1000, "1 core"), ("memory_bytes", GIB, "1 GiB"), ("running_jobs", 1, "one more running job"),
        ("memory_bytes", 999 * 1024 * GIB, "999 TiB"), ("memory_bytes", 1023 * GIB, "1023 GiB"),
        ("memory_bytes", GIB // 2, "512 MiB"),
    ],
)  # fmt: skip
def test_a_quota_counts_in_words(name: str, number: int, text: str) -> None:
    limit = Limit(name, 4 * number, 4 * number, number)
    whole = {"cpu_milli": "4", "memory_bytes": reasons.memory(4 * number)}.get(name, str(4 * number))
    assert reasons.quota("red", limit).text == f"waits: needs {text}, quota of red leaves 0 of {whole}"


def test_a_quota_to_raise_is_said_as_a_command() -> None:
    wanted = {"accelerators.a100": 2, "accelerators.h100": 1, "cpu_milli": 2500, "memory_bytes": 3 * GIB + 1}
    assert reasons.raise_quota("red", wanted | {"running_jobs": 4}) == (
        "raise the quota: shoal quota red --type a100=2 --type h100=1 --cpus 2.5 --memory 3073MiB --running 4"
    )


def test_the_command_that_raises_a_quota_is_one_that_the_command_line_has() -> None:
    _, _, said = reasons.raise_quota("red", {"accelerators": 2, "cpu_milli": 1000, "running_jobs": 4}).partition(
        "shoal "
    )
    group = typer.main.get_command(app)
    name, *arguments = said.split()
    command = group.get_command(group.make_context("shoal", ["--help"], resilient_parsing=True), name)
    given = command.make_context(name, arguments).params
    assert (given["accelerators"], given["cpus"], given["running"]) == ("2", "1", "4")


def test_a_gang_is_told_how_many_of_its_ranks_fit_now() -> None:
    held = [running("r", {"n0000": devices(0)})]
    told = decide_on(nodes(1, per_node=4), [job("gang", resources=1, ranks=4)], held).waits["gang"]
    assert told.text.startswith("waits: needs 4 x 1 a100, 3 of 4 ranks fit now")
    assert told.facts["ranks_that_fit"] == 3


@pytest.mark.parametrize(
    ("age_s", "on", "at_risk_s"),
    [
        (0.0, [0], "0 s since its last checkpoint on 1 slot"),
        (7.0, [0, 1], "7 s since its last checkpoint on 2 slots"),
        (None, [0, 1], "it never reported a checkpoint and holds 2 slots"),
    ],
)
def test_a_victim_is_told_what_it_loses(age_s: float | None, on: list[int], at_risk_s: str) -> None:
    held = [running("v", {"n0": devices(*on)}, at_risk_s=age_s)]
    [preemption] = decide_on([node("n0", {"a100": 2})], [job("g", "b", 2, cls=G)], held).preemptions
    assert preemption.reason.text == f"gives way to guaranteed job g of b; {at_risk_s}"


@pytest.mark.parametrize(
    ("held", "change"),
    [(1, "job r0 ends"), (2, "jobs r0 and r1 end"), (8, "8 jobs end (r0, r1, ...)")],
)
def test_the_jobs_to_end_are_named_in_good_grammar(held: int, change: str) -> None:
    on = [running(f"r{at}", {"n0000": devices(at)}, end=NOW + 1 + at) for at in range(held)]
    told = explain(index_of(nodes(1), [job("j", resources=8)], on).snapshot(NOW), "j")
    assert [cause.change for cause in told.causes if cause.cause == "shape"] == [change]


def test_a_single_one_is_not_many() -> None:
    waiting = [job("mine"), job("theirs", "b", at=1.0)]
    index = index_of([node("n0", {"a100": 1})], waiting)
    started = {start.job_id for start in decide(index.snapshot(NOW)).starts}
    [waits] = {"mine", "theirs"} - started
    share = next(cause for cause in explain(index.snapshot(NOW), waits).causes if cause.cause == "share")
    assert "1 other tenant has work and goes first" in share.reason.text


def test_a_job_that_was_overtaken_is_told_by_whom() -> None:
    def told(*waiting: Pending) -> tuple[str, object]:
        decision = decide_on([node("n0", {"a100": 2})], waiting)
        (reason,) = decision.waits.values()
        return reason.code, reason.facts["served_first"]

    others = job("x", "b", 2, at=1.0)
    assert told(job("y", "a", 2, at=2.0), others) == ("share", ["a"])
    assert told(job("y", "a", 2, at=2.0), job("x", "a", 2, at=1.0)) == ("priority", ["a"])
    # Guaranteed work goes first whatever the shares are.
    assert told(job("y", "a", 2, at=2.0), job("x", "b", 2, at=3.0, cls=G)) == ("priority", ["b"])


def test_of_several_types_the_one_of_which_least_is_lacking_is_named() -> None:
    machines = [node("n0", {"a100": 8}), node("n1", {"h100": 8})]
    held = [
        running("r", {"n0": devices(0, 1, 2)}, "a"),
        running("s", {"n1": devices(0, 1, kind="h100")}, "a", kind="h100"),
    ]
    tenants = [Tenant("a", quota=Quota(by_type=(("a100", 4), ("h100", 2))))]
    decision = decide_on(machines, [job("j", "a", need(2, ANY))], held, tenants)
    assert decision.waits["j"].facts["limit"] == 4


def test_room_that_is_being_made_counts_as_taken_and_stays_claimed() -> None:
    held = [running("r", {"n0": devices(0, 1, 2, 3)}, "b", at_risk_s=1.0)]
    waiting = [job(name, "a", 4, cls=G, at=at) for at, name in enumerate(("first", "second"))]
    index = index_of([node("n0", {"a100": 4})], waiting, held, [Tenant("a", quota=Quota(accelerators=4))])
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    claim = Claim("first", "a100", (("n0", 1),), 1)
    assert decision.claims == (claim,)
    assert {name: reason.code for name, reason in decision.waits.items()} == {"first": "preempting", "second": "quota"}
    carry_out(index, snapshot, decision)
    again = decide(index.snapshot(NOW + 1.0))
    assert (again.claims, again.preemptions) == ((claim,), ())


@pytest.mark.parametrize(
    ("number", "text"), [(GIB + GIB // 2, "1.5 GiB"), (1000 * GIB, "1000 GiB"), (123 * GIB // 2, "61.5 GiB")]
)
def test_memory_is_told_in_three_digits_or_in_whole_units(number: int, text: str) -> None:
    assert reasons.memory(number) == text


def test_a_wait_tells_what_a_program_needs_to_know_of_it() -> None:
    wanted = Need("a100", 2, (), 4000, GIB)
    per_rank = {"accelerators": {"a100": 2}, "cpu_milli": 4000, "memory_bytes": GIB}
    assert reasons.shape(wanted, 1, 5, 3).facts == {
        "ranks": 1, "per_rank": per_rank, "free_on_one_node": 5, "ranks_that_fit": 3
    }  # fmt: skip
    never = reasons.impossible(wanted, 3, 2)
    assert never.text == "needs 3 x 2 a100, all nodes together hold 2 of 3 ranks: would never fit"
    assert never.facts == {"ranks": 3, "per_rank": per_rank, "ranks_that_fit": 2}


@pytest.mark.parametrize(
    ("victims", "text"),
    [
        (0, "what is stopping leaves to free capacity"),
        (1, "1 best-effort job leaves to free capacity"),
        (2, "2 best-effort jobs leave to free capacity"),
    ],
)
def test_capacity_that_is_being_freed_is_told_by_who_leaves(victims: int, text: str) -> None:
    told = reasons.preempting(victims)
    assert (told.text, told.facts) == (f"waits: {text}", {"victims": victims})


@pytest.mark.parametrize(("known", "due"), [(True, ", due in 30 s"), (False, "")])
def test_capacity_kept_for_another_job_tells_when_if_that_is_known(known: bool, due: str) -> None:
    held = Reservation("big", Need("a100", 8, (), 0, 0), NOW + 30, known, holds=(), after=())
    told = reasons.kept_for([held], "a100", NOW)
    assert told.text == f"waits: the free capacity is kept for job big{due}"
    assert told.facts == {"for_job": "big", "until": NOW + 30 if known else None}
