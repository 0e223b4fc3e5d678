"""One decision out of what several extensions say, and what an error in one of them costs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.admission import (
    Additions,
    Blocker,
    ClusterIndex,
    Decision,
    Explanation,
    Preemption,
    Prefers,
    Snapshot,
    Start,
)
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord, RankPlacement
from shoal.control.extensions.deciding import Decisions
from shoal.control.jobs.cache import Live
from shoal.core import NO_AFFINITY, Affinity, Invalid, PriorityClass, Reason, Toleration
from shoal.extension import Extension
from tests.admission.cases import NOW, index_of, job, node, running

MINE, YOURS = Reason("mine", "it is mine"), Reason("yours", "it is yours", {"starts_at": NOW + 5})


NOBODY: dict[str, Live] = {}


class Part(Extension):
    """Says what a test gives it; an exception is raised."""

    name: ClassVar[str] = "part"

    def __init__(self, name: str, **says: Any) -> None:
        self.name = name  # type: ignore[misc]
        self.says = says

    def _say(self, what: str, otherwise: Any) -> Any:
        found = self.says.get(what, otherwise)
        if isinstance(found, Exception):
            raise found
        return found

    def decider(self) -> Any:
        return self.says.get("decider")

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        found: Mapping[str, Reason] = self._say("holds", {})
        return found

    def adjust(self, snapshot: Snapshot, decision: Decision) -> Additions:
        found: Additions = self._say("adjust", Additions())
        return found

    async def explain(self, snapshot: Snapshot, job: Any) -> Sequence[Blocker]:
        found: Sequence[Blocker] = self._say("explain", ())
        return found


class Nothing:
    """A decider that starts nothing."""

    def __init__(self) -> None:
        self.asked: list[Snapshot] = []

    def __call__(self, snapshot: Snapshot, prefers: Prefers | None) -> Decision:
        self.asked.append(snapshot)
        return Decision(waits={job_id: Reason("no", "nothing starts") for job_id in snapshot.pending.by_id})

    async def explain(self, snapshot: Snapshot, job: Any, where: str) -> Explanation | None:
        return Explanation(job.job.id, (), 7, None, "the decider says no") if job.job.name != "other" else None


class Broken(Nothing):
    def __call__(self, snapshot: Snapshot, prefers: Prefers | None) -> Decision:
        raise ZeroDivisionError("by a defect")

    async def explain(self, snapshot: Snapshot, job: Any, where: str) -> Explanation | None:
        raise ZeroDivisionError("by a defect")


def index() -> ClusterIndex:
    """Two devices, and a job for each of a, b and c."""
    return index_of([node("n", {"a100": 2})], [job(name, at=NOW + at) for at, name in enumerate("abc")])


def on(*devices: str) -> Start:
    return Start("c", tuple(RankPlacement(at, "n", (one,)) for at, one in enumerate(devices)), Reason("added", "so"))


def started(decision: Decision) -> list[str]:
    return [start.job_id for start in decision.starts]


def test_what_any_of_them_holds_no_decider_sees_and_the_first_reason_is_told() -> None:
    decider = Nothing()
    parts = [Part("a", holds={"a": MINE}), Part("b", holds={"a": YOURS, "b": YOURS}), Part("p", decider=decider)]
    decision = Decisions(parts, NOBODY.get).decide(index().snapshot(NOW))
    assert set(decider.asked[0].pending.by_id) == {"c"}
    assert {job_id: reason.code for job_id, reason in decision.waits.items()} == {"a": "mine", "b": "yours", "c": "no"}
    assert started(Decisions(parts[:2], NOBODY.get).decide(index().snapshot(NOW))) == ["c"]


def test_two_deciders_are_an_error_that_names_both() -> None:
    with pytest.raises(Invalid, match="here and there both decide") as raised:
        Decisions([Part("here", decider=Nothing()), Part("mid"), Part("there", decider=Nothing())], NOBODY.get)
    assert "here.enabled=false" in str(raised.value.hint)


def test_additions_are_united_and_those_that_contradict_are_dropped() -> None:
    parts = [
        Part("a", holds={"c": MINE}, adjust=Additions([on("a100:0")])),
        Part("b", adjust=Additions([on("a100:0"), replace(on("a100:1"), job_id="a")])),
        Part("p", decider=Nothing()),
    ]
    decision = Decisions(parts, NOBODY.get).decide(index().snapshot(NOW))
    assert started(decision) == ["c", "a"]
    assert set(decision.waits) == {"b"}


WRONG = {
    "a device twice": on("a100:0", "a100:0"),
    "too many ranks": on("a100:0", "a100:1"),
    "a device that is not there": on("a100:7"),
    "none": on(),
    "no such node": Start("c", (RankPlacement(0, "m", ("a100:0",)),), MINE),
    "no such job": replace(on("a100:0"), job_id="z"),
    "no device": Start("c", (RankPlacement(0, "n", ()),), MINE),
    "rank 1 alone": Start("c", (RankPlacement(1, "n", ("a100:0",)),), MINE),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_start_is_dropped(what: str) -> None:
    parts = [Part("b", adjust=Additions([WRONG[what]])), Part("p", decider=Nothing())]
    assert Decisions(parts, NOBODY.get).decide(index().snapshot(NOW)).starts == ()


def test_what_the_decision_gave_away_is_not_given_again() -> None:
    parts = [Part("b", adjust=Additions([on("a100:0"), on("a100:1")]))]
    decision = Decisions(parts, NOBODY.get).decide(index().snapshot(NOW))
    assert sorted(started(decision)) == ["a", "b"]


def test_nothing_is_started_that_another_holds_too() -> None:
    parts = [Part("a", holds={"c": MINE}, adjust=Additions([on("a100:0")])), Part("b", holds={"c": YOURS}),
             Part("p", decider=Nothing())]  # fmt: skip
    assert Decisions(parts, NOBODY.get).decide(index().snapshot(NOW)).starts == ()


def test_a_preemption_is_added_once_and_only_of_what_runs() -> None:
    busy = index()
    busy.start(running("r", {"n": ["a100:0"]}))
    ask = Additions(preemptions=[Preemption("r", "", MINE), Preemption("a", "", MINE)])
    parts = [Part("a", adjust=ask), Part("b", adjust=ask), Part("p", decider=Nothing())]
    decision = Decisions(parts, NOBODY.get).decide(busy.snapshot(NOW))
    assert [one.job_id for one in decision.preemptions] == ["r"]


@given(st.sets(st.sampled_from(["holds", "adjust", "decider"])), st.integers(0, 2))
def test_an_error_in_one_costs_the_others_nothing(broken: set[str], at: int) -> None:
    """Whatever one raises: the holds of the others hold, their additions are made, and the rest starts."""
    says: dict[str, Any] = {hook: ZeroDivisionError("by a defect") for hook in broken - {"decider"}}
    if "decider" in broken:
        says["decider"] = Broken()
    parts = [Part("a", holds={"a": MINE}), Part("b", holds={"c": MINE}, adjust=Additions([on("a100:1")]))]
    parts.insert(at, Part("bad", **says))
    decisions = Decisions(parts, NOBODY.get)
    for _ in range(2):
        decision = decisions.decide(index().snapshot(NOW))
        assert started(decision) == ["b", "c"]
        assert decision.waits["a"] == MINE
    assert {one.name for one in decisions.capabilities()} == {f"bad.{hook}" for hook in broken}
    parts[at].says.clear()
    fixed = Decisions(parts, NOBODY.get)
    fixed.decide(index().snapshot(NOW))
    assert list(fixed.capabilities()) == []


@pytest.mark.parametrize("nonsense", [None, 7, {"a": "because"}, {"a": None}])
def test_nonsense_is_an_error_of_its_own_hook(nonsense: object) -> None:
    parts = [Part("a", holds={"a": MINE}), Part("bad", holds=nonsense, adjust=nonsense or Additions([nonsense]))]  # type: ignore[list-item]
    decisions = Decisions(parts, NOBODY.get)
    assert started(decisions.decide(index().snapshot(NOW))) == ["b", "c"]
    assert {one.name for one in decisions.capabilities()} == {"bad.holds", "bad.adjust"}
    found = explained([Part("bad", explain=(nonsense,))], live("a"))
    assert codes(found) == ["quota"]


def test_what_a_broken_extension_held_stays_held_until_it_works_again() -> None:
    part = Part("a", holds={"a": MINE})
    decisions = Decisions([part], NOBODY.get)
    snapshot = index().snapshot(NOW)
    assert started(decisions.decide(snapshot)) == ["b", "c"]
    part.says["holds"] = ZeroDivisionError("by a defect")
    assert started(decisions.decide(snapshot)) == ["b", "c"]
    assert [one.name for one in decisions.capabilities()] == ["a.holds"]
    part.says["holds"] = {}
    assert started(decisions.decide(snapshot)) == ["a", "b"]
    assert list(decisions.capabilities()) == []


# --- why ---


def live(name: str, called: str = "job") -> Live:
    waiting = index().snapshot(NOW).pending.by_id[name]
    return Live(JobRecord(
        name, "a", called, JobState.QUEUED, 1, "{}", waiting.resources, 1, PriorityClass.BEST_EFFORT, 0, NOW, NOW,
    ))  # fmt: skip


def explained(parts: Sequence[Extension], job: Live) -> Explanation:
    async def usual() -> Explanation:
        return Explanation(job.job.id, (Blocker("quota", True, Reason("quota", "no quota")),), 3, None, "no quota")

    return asyncio.run(Decisions(parts, NOBODY.get).explain(index().snapshot(NOW), job, usual, ""))


def codes(found: Explanation) -> list[str]:
    return [cause.reason.code for cause in found.causes]


def test_causes_are_added_up_and_what_blocks_is_in_the_summary() -> None:
    more, note = Blocker("a", True, Reason("more", "and more")), Blocker("b", False, Reason("note", "by the way"))
    parts = [Part("a", explain=(more,)), Part("b", explain=(note,)), Part("c", explain=ZeroDivisionError("oh"))]
    found = explained(parts, live("a"))
    assert codes(found) == ["quota", "more", "note"]
    assert (found.summary, found.ahead) == ("no quota; and more", 3)


def test_a_held_job_is_explained_by_what_holds_it() -> None:
    parts = [Part("a", holds={"a": MINE}), Part("p", decider=Nothing()), Part("z", holds={"a": YOURS})]
    found = explained(parts, live("a"))
    assert codes(found) == ["mine", "yours"]
    assert found.summary == "it is mine; it is yours"
    assert found.estimated_start is None, "one of them does not say when"
    assert explained(parts[1:], live("a")).estimated_start == NOW + 5
    said = (Blocker("z", True, YOURS, "ask me"), Blocker("z", False, Reason("note", "by the way")))
    found = explained([*parts[:2], Part("z", holds={"a": YOURS}, explain=said)], live("a"))
    assert [(cause.reason.code, cause.change) for cause in found.causes] == [
        ("mine", ""), ("yours", "ask me"), ("note", "")
    ]  # fmt: skip


def test_the_decider_says_why_where_it_knows() -> None:
    parts = [Part("p", decider=Nothing())]
    assert explained(parts, live("b")).summary == "the decider says no"
    assert explained(parts, live("b", "other")).summary == "no quota"
    assert explained([Part("p", decider=Broken())], live("b")).summary == "no quota"


# --- nodes ---


def test_what_extensions_say_of_nodes_is_added_up_and_one_that_cannot_say_it_keeps_the_job_off() -> None:
    zone, red = Affinity(require=(("zone", ("a",)),)), Affinity(tolerate=(Toleration("team", "red"),))

    class Placing(Part):
        def affinity(self, job: Any) -> Affinity:
            found: Affinity = self._say("affinity", NO_AFFINITY)
            return found

    asks = Live(
        live("a").job,
        _manifest=JobManifest.model_validate({"name": "j", "command": ["x"], "nodes": {"require": {"b": "c"}}}),
    )
    parts = [Placing("a", affinity=zone), Placing("b", affinity=red), Placing("c")]
    decisions = Decisions(parts, NOBODY.get)
    found = decisions.affinity(asks)
    assert found == Affinity(require=(("b", ("c",)), ("zone", ("a",))), tolerate=red.tolerate)
    parts[2].says["affinity"] = ZeroDivisionError("by a defect")
    found = decisions.affinity(asks)
    assert not found.allows({"b": "c", "zone": "a"}, ())
    assert [one.name for one in decisions.capabilities()] == ["c.affinity"]


def test_seconds_saved_are_added_up_and_choose_the_node() -> None:
    class Liking(Part):
        def prefers(self, job: Any) -> Mapping[str, float]:
            found: Mapping[str, float] = self._say("prefers", {})
            return found

    index = index_of([node("m", {"a100": 1}), node("n", {"a100": 4}), node("o", {"a100": 4})], [job("a")])
    parts = [
        Liking("a", prefers={"n": 3.0, "o": 2.0}),
        Liking("b", prefers={"o": 2.0}),
        Liking("c", prefers=ZeroDivisionError()),
    ]
    decisions = Decisions(parts, {"a": live("a")}.get)
    (start,) = decisions.decide(index.snapshot(NOW)).starts
    assert start.placement[0].node == "o"
    assert [one.name for one in decisions.capabilities()] == ["c.prefers"]
