"""Jobs that another part puts in order: their capacity, quotas and reservations are admission's all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pytest

from shoal.admission import Decision, GroupKey, Order, Pending, Policy, Reservation, Turn, decide, resolve
from shoal.core import PriorityClass, Quota, Reason, Tenant

from .cases import NOW, B, G, index_of, job, node, nodes, running


class Listed:
    """Best-effort jobs in the order of a list; the others of its jobs have no turn."""

    def __init__(self, turns: Iterable[Turn] = (), see: Callable[[Mapping[str, int], Set[str]], None] | None = None):
        self._turns, self._see = list(turns), see

    def has(self, key: GroupKey) -> bool:
        return key.priority_class is PriorityClass.BEST_EFFORT

    def turns(self, left: Mapping[str, int], begun: Set[str]) -> Iterator[Turn]:
        for turn in self._turns:
            yield turn
            if self._see is not None:
                self._see(left, begun)

    def starts(self, turn: Turn, given: str) -> Reason:
        return Reason("listed", f"given {given}")

    def waits(self, job: Pending, reservation: Reservation | None) -> Reason:
        return Reason("unlisted", "waits", {"after": [] if reservation is None else list(reservation.after)})


def turn(waiting: Pending, kinds: Sequence[str] = ("a100",), most: int = 1, **more: Any) -> Turn:
    return Turn(waiting, [(resolve(waiting.resources, kind), most) for kind in kinds], **more)


def ask(pending: Sequence[Pending], order: Order, *others: Any, machines: Any = None, **more: Any) -> Decision:
    return decide(index_of(machines or nodes(1, 4), pending, *others, **more).snapshot(NOW), order)


def sizes(decision: Decision) -> dict[str, int]:
    return {start.job_id: len(start.placement) for start in decision.starts}


def test_they_start_in_the_order_given_after_all_others() -> None:
    first, second, other = job("j1", resources=2, at=1.0), job("j2", resources=2, at=2.0), job("g", at=9.0, cls=G)
    seen: list[tuple[dict[str, int], set[str]]] = []
    order = Listed([turn(second), turn(first)], lambda left, begun: seen.append((dict(left), set(begun))))
    found = ask([first, second, other], order)
    assert list(sizes(found)) == ["g", "j2"]
    assert seen == [({"a100": 1}, {"j2"}), ({"a100": 1}, {"j2"})]
    assert found.starts[1].reason.text == "given 2 a100"
    assert {name: reason.code for name, reason in found.waits.items()} == {"j1": "unlisted"}
    assert sizes(ask([first, second, other], Listed())) == {"g": 1}, "without a turn none starts"


def test_the_first_way_that_fits_is_taken_with_as_many_ranks_as_fit() -> None:
    machines = [node("n0", {"a100": 3}), node("n1", {"k80": 2})]
    waiting = job("j", ranks=1, most=9)
    assert sizes(ask([waiting], Listed([turn(waiting, most=9)]), machines=machines)) == {"j": 3}
    assert sizes(ask([waiting], Listed([turn(waiting, most=2)]), machines=machines)) == {"j": 2}
    assert sizes(ask([waiting], Listed([turn(waiting, most=0)]), machines=machines)) == {"j": 1}, (
        "what it needs to start"
    )
    assert sizes(ask([waiting], Listed([turn(waiting, most=9, whole=True)]), machines=machines)) == {}
    gang = job("j", ranks=4)
    assert sizes(ask([gang], Listed([turn(gang)]), machines=machines)) == {}
    assert sizes(ask([gang], Listed([turn(gang)]), machines=[*machines, node("n2", {"a100": 1})])) == {"j": 4}


@pytest.mark.parametrize(
    ("quota", "started", "code"),
    [
        (Quota(accelerators=3), {"j1": 3}, "quota"),
        (Quota(accelerators=4), {"j1": 3, "j2": 1}, None),
        (Quota(running_jobs=1), {"j1": 3}, "quota"),
    ],
)
def test_quotas_hold(quota: Quota, started: dict[str, int], code: str | None) -> None:
    one, two = job("j1", ranks=3, at=1.0), job("j2", at=2.0)
    found = ask([one, two], Listed([turn(one), turn(two)]), (), [Tenant("a", quota=quota)])
    assert sizes(found) == started
    assert {reason.code for reason in found.waits.values()} == ({code} if code else set())


def test_a_job_with_quota_left_on_another_type_is_told_which_quota_kept_it_from_this_one() -> None:
    waiting = job("j", resources=replace(job("x").resources, accelerators={"any": 1}))
    machines = [node("n0", {"a100": 2}), node("n1", {"k80": 1})]
    held = [running("r", {"n1": ["k80:0"]}, kind="k80"), running("s", {"n0": ["a100:0"]})]
    tenants = [Tenant("a", quota=Quota(by_type=(("a100", 1),)))]
    found = ask([waiting], Listed([turn(waiting)]), held, tenants, machines=machines)
    assert found.waits["j"].facts["quota"] == "accelerators.a100"
    assert ask([waiting], Listed(), held, tenants, machines=machines).waits["j"].code == "unlisted"


def test_capacity_is_reserved_for_those_that_ask_and_kept_from_what_would_delay_them() -> None:
    gang, small = job("gang", resources=4, at=1.0), job("small", at=2.0)
    held = [running("r", {"n0000": ["a100:0"]}, end=NOW + 100)]
    found = ask([gang, small], Listed([turn(gang, reserves=True), turn(small)]), held)
    assert sizes(found) == {}
    assert found.waits["gang"].facts["after"] == ["r"]
    assert found.wake_at == NOW + 100
    assert sizes(ask([gang, small], Listed([turn(gang), turn(small)]), held)) == {"small": 1}, "it did not ask"
    short = small._replace(expected_s=100.0)
    assert sizes(ask([gang, short], Listed([turn(gang, reserves=True), turn(short)]), held)) == {"small": 1}
    both = Listed([turn(gang, reserves=True), turn(short, reserves=True)])
    assert sizes(ask([gang, short], both, held)) == {}, "of two that reserve the first comes first"


def test_what_admission_reserved_is_not_theirs() -> None:
    """A guaranteed gang waits for one job to end; preemption is off."""
    gang, small = job("gang", "b", 4, at=NOW - 500, cls=G), job("small", at=2.0)
    held = [running("r", {"n0000": ["a100:0"]}, end=NOW + 100)]
    off = Policy(preemption=False)
    order = Listed([turn(small), turn(small, reserves=True)])
    assert sizes(ask([gang, small], order, held, policy=off)) == {}
    short = small._replace(expected_s=100.0)
    assert sizes(ask([gang, short], Listed([turn(short)]), held, policy=off)) == {"small": 1}


def test_what_they_start_with_is_charged_to_their_tenants() -> None:
    waiting = job("j", ranks=2, expected_s=10.0)
    found = ask([waiting], Listed([turn(waiting)]))
    assert found.starts[0].charge == 20.0
    assert found.deficits == {"a": -20.0}


def test_one_that_could_never_run_or_waits_after_a_failure_is_told_so() -> None:
    never, later = job("never", resources=9), job("later", "b", not_before=NOW + 5, cls=B)
    found = ask([never, later], Listed([turn(never)]))
    assert {name: reason.code for name, reason in found.waits.items()} == {"never": "impossible", "later": "backoff"}
    assert found.wake_at == NOW + 5
