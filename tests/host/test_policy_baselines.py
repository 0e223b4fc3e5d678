"""What the policies that `model` is compared with do, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core import Invalid
from shoal.host.policy.static import Static
from shoal.host.types import UNLIMITED, Reading, Setting
from tests.host.test_policy import UNKNOWN, Run, guaranteed, neighbour

PRESSED: dict[str, Any] = {"saturation": Reading(0.5)}
BETWEEN: dict[str, Any] = {"saturation": Reading(0.03)}
CALM: dict[str, Any] = {"saturation": Reading(0.0)}


def silent(run: Run, *others: str) -> None:
    """A tick of which nothing is known."""
    run.see(guaranteed(cpus=UNKNOWN), *(neighbour(name, cores=4) for name in others), domains=2)


def test_subdomain_switches_prefetchers_off_by_halves_and_on_again() -> None:
    run, seen = Run("subdomain"), list[int | None]()
    for home in (PRESSED, BETWEEN, PRESSED, PRESSED, BETWEEN, CALM, CALM, CALM, CALM):
        run.see(guaranteed(), neighbour("flood", cores=4), domains=2, **home)
        assert run.applied["flood"].domains == {1}
        seen.append(run.applied["flood"].prefetching)
    assert seen == [2, 2, 1, 0, 0, 1, 2, 3, None]


@pytest.mark.parametrize("policy", ["subdomain", "core-throttle"])
def test_limits_are_held_while_it_is_silent_for_a_moment_and_lifted_after(policy: str) -> None:
    run = Run(policy)
    for _ in range(2):
        run.see(
            guaranteed(Reading(0.003)), neighbour("flood", cores=4), neighbour("other", cores=4), domains=2, **PRESSED
        )
    limited = run.applied["flood"]
    assert (limited.prefetching, limited.cores) != (None, None)
    silent(run, "flood", "other")
    assert run.applied["flood"] == limited
    for _ in range(25):
        silent(run, "flood", "other")
    assert run.applied.get("flood", UNLIMITED) in (UNLIMITED, Setting(domains=frozenset({1})))


def test_core_throttle_gives_a_reason_for_each_group() -> None:
    run = Run("core-throttle")
    plan = run.see(guaranteed(cpus=UNKNOWN), neighbour("a"), neighbour("b"))
    assert {name: reason.code for name, reason in plan.reasons.items()} == {"a": "blind", "b": "blind"}
    plan = run.see(guaranteed(Reading(0.002)), neighbour("a", cores=4), neighbour("b", cores=4))
    for reason in plan.reasons.values():
        assert reason.code == "too-slow"
        assert reason.as_json()["facts"]["of"] == "feed"


def test_kelp_takes_prefetchers_first_then_cores_and_gives_back_in_the_opposite_order() -> None:
    run, seen = Run("kelp"), list[tuple[int | None, int | None]]()
    for home in [PRESSED] * 5 + [CALM] * 6:
        run.see(guaranteed(), neighbour("flood", cores=4), **home)
        one = run.applied.get("flood", UNLIMITED)
        seen.append((one.prefetching, one.cores))
    taken = [(2, None), (1, None), (0, None), (0, 3), (0, 2)]
    assert seen == [*taken, (0, 3), (0, None), (1, None), (2, None), (3, None), (None, None)]


def test_kelp_lends_free_cores_of_the_guaranteed_domain_and_takes_them_back_first() -> None:
    run, seen = Run("kelp"), list[tuple[frozenset[int] | None, int | None]]()
    for home in (BETWEEN, CALM, CALM, PRESSED, PRESSED, PRESSED):
        run.see(guaranteed(), neighbour("flood", cores=4), domains=2, **home)
        seen.append((run.applied["flood"].domains, run.applied["flood"].cores))
    assert seen == [
        ({1}, None), ({0, 1}, 3), ({0, 1}, 4), ({0, 1}, 3), ({1}, None), ({1}, None),
    ]  # fmt: skip
    assert run.applied["flood"].prefetching == 2


def test_a_share_that_is_not_possible_is_refused_by_name() -> None:
    with pytest.raises(Invalid) as refused:
        Static(share=0.0)
    assert refused.value.where == "share"
