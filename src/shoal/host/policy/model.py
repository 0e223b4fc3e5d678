"""`model`: ours. It learns, for each best-effort group, what a unit of its share costs guaranteed work (`contention`),
and gives each the share at which all of them together cost nine tenths of what is allowed.

- A group that is new starts low and grows; every change is bounded, downwards less than upwards.
- What undisturbed means is measured again by pausing best-effort work for 50 ms every few seconds; with several
  groups, one at a time is paused to learn which of them disturbs.
- A group that keeps more elsewhere is moved; one at its floor goes up the ladder of `rungs`, and comes down again.
- While a sensor is silent nothing is loosened; when all have been silent for `HOLD_TICKS`, limits are lifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from shoal.core import PriorityClass, Reason
from shoal.host.policy import pauses
from shoal.host.policy.contention import Contention, divide
from shoal.host.policy.pauses import NO_PAUSE, Pause
from shoal.host.policy.placing import Place, better_place, may_return
from shoal.host.policy.rungs import Rung, climb, descend, ladder, limit, older
from shoal.host.policy.strain import Quiet, Seen, Strain, Watch, absorb, is_idle, look
from shoal.host.types import TICK_S, GroupState, Knob, Plan, Setting, Snapshot

MEASURING = "measuring"
"""The code of the reason for which a group is frozen for a moment only."""
_AIM = 0.9
_SLOW_START = 0.05
_MOST_DOWN, _MOST_UP, _FAST_UP = 8.0, 1.25, 2.0
_CALM, _LOW, _HIGH = 0.35, 0.7, 1.0
"""Strains: below the first a share may double at once, between the others nothing is changed."""
_RECOVERED = 0.5
_NEGLIGIBLE = 0.08
"""A change of a share by less than this part is not worth a write."""
_WORTH = 0.8
"""Nobody who is unlimited is limited to a share above this: without it strain is within a tenth of what is allowed, and
no machine's own speed is so steady."""
_WORTH_APART = 0.65
"""The same of a group whose memory domain guaranteed work does not share: it is not the first to be suspected."""
_TELLING = 0.5
"""With less of its share running, what a pause shows of a group is noise."""
_SMOOTH = 0.5


@dataclass(frozen=True, slots=True)
class Contender:
    """A best-effort group as the policy remembers it."""

    share: float = _SLOW_START
    rung: Rung = field(default_factory=Rung)
    place: Place = field(default_factory=Place)
    idle: bool = False
    """It did nothing when it was looked at last."""
    apart: bool = False
    """It shared no memory domain with guaranteed work then, as far as known."""


@dataclass(frozen=True, slots=True)
class ModelState:
    contention: Contention = field(default_factory=Contention)
    quiet: Quiet = field(default_factory=Quiet)
    watch: Watch = field(default_factory=Watch)
    groups: Mapping[str, Contender] = field(default_factory=dict)
    pause: Pause = NO_PAUSE
    strain: float | None = None
    """Smoothed."""
    pressed: int = 0
    """For how many ticks it has been above what is allowed although every share is at its floor."""


@dataclass(frozen=True, slots=True)
class Model:
    name: str = "model"

    def start(self) -> ModelState:
        return ModelState()

    def step(self, snapshot: Snapshot, state: ModelState) -> tuple[Plan, ModelState]:
        present = snapshot.of(PriorityClass.BEST_EFFORT)
        homes = frozenset[int]().union(*(one.domains for one in snapshot.of(PriorityClass.GUARANTEED)))
        groups: dict[str, Contender] = {}
        resumed, left = set[str](), set[str]()
        for one in present:
            name = one.group.name
            known = _known(state.groups.get(name), one, snapshot)
            idle = known.idle if one.applied.frozen else is_idle(one)
            apart = bool(one.domains and homes) and one.domains.isdisjoint(homes)
            if known.idle and not idle:
                resumed.add(name)
            if apart and not known.apart:
                left.add(name)
            groups[name] = _as_seen(known, idle=idle, apart=apart, free=name in left)
        contention = state.contention.keep(groups.keys() - left)
        state = replace(state, groups=groups, contention=contention)
        if not present:
            return Plan({}), replace(state, pause=NO_PAUSE, strain=None)
        if state.pause.groups and not state.pause.settled and Knob.FREEZE in snapshot.knobs:
            reasons = {name: Reason(MEASURING, "a pause to measure has begun") for name in groups}
            return _plan(snapshot, state, replace(state.pause, settled=True), reasons)
        state, seen, measured = _learn(snapshot, state, resumed)
        if not snapshot.of(PriorityClass.GUARANTEED):
            return _release(snapshot, state, "no-guaranteed", "there is no guaranteed work to protect")
        if seen.worst is None and not seen.hold:
            return _release(snapshot, state, "blind", "nothing tells how guaranteed work fares: limits are lifted")
        state, reasons = _decide(snapshot, state, seen, measured)
        if measured:
            pause = replace(state.pause, groups=())
        else:
            pause = pauses.next_pause(
                snapshot, state.pause, limited=_limited(state), floored=_floored(snapshot, state),
                apart=all(one.apart for one in state.groups.values()), seen=seen, strain=state.strain,
                known=state.contention.alpha.keys(),
            )  # fmt: skip
        return _plan(snapshot, state, pause, reasons)


def _known(remembered: Contender | None, one: GroupState, snapshot: Snapshot) -> Contender:
    if remembered is None:
        return _newcomer(one, snapshot)
    floor = _floor(one, snapshot)
    return remembered if remembered.share >= floor else replace(remembered, share=floor)


def _as_seen(one: Contender, *, idle: bool, apart: bool, free: bool) -> Contender:
    share = 1.0 if free else one.share
    if (idle, apart, share) == (one.idle, one.apart, one.share):
        return one
    return Contender(share, one.rung, one.place, idle, apart)


def _newcomer(one: GroupState, snapshot: Snapshot) -> Contender:
    return Contender(share=min(1.0, max(_SLOW_START, _floor(one, snapshot))))


def _floor(one: GroupState, snapshot: Snapshot) -> float:
    return min(1.0, max(one.group.min_share, snapshot.least_share))


def _running(snapshot: Snapshot) -> dict[str, float]:
    """Shares in force of the groups that disturbed, or could have."""
    return {
        one.group.name: one.applied.share
        for one in snapshot.of(PriorityClass.BEST_EFFORT)
        if not (one.applied.frozen or one.applied.evicted or is_idle(one))
    }


def _traffic(snapshot: Snapshot) -> dict[str, float] | None:
    """Bytes per second by group; None unless known of all."""
    found: dict[str, float] = {}
    for one in snapshot.of(PriorityClass.BEST_EFFORT):
        bandwidth = one.bandwidth.known()
        if bandwidth is None:
            return None
        found[one.group.name] = bandwidth
    return found


def _limited(state: ModelState) -> bool:
    return any(one.share < 1 or one.rung.level for one in state.groups.values())


def _floored(snapshot: Snapshot, state: ModelState) -> bool:
    return all(
        state.groups[one.group.name].share <= _floor(one, snapshot)
        for one in snapshot.of(PriorityClass.BEST_EFFORT)
        if not is_idle(one)
    )


def _learn(snapshot: Snapshot, state: ModelState, resumed: Set[str]) -> tuple[ModelState, Seen, bool]:
    """What this snapshot teaches. The last value: it shows a pause, so it says nothing about limits. Nor does it say
    what a unit of share costs where groups have `resumed`, which may have worked for a part of the time only."""
    running = _running(snapshot)
    held = {one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT) if one.applied.frozen}
    measured = bool(state.pause.groups) and held >= set(state.pause.groups) - {""}
    if not running:
        quiet = absorb(state.quiet, snapshot)
        seen = look(snapshot, state.watch, quiet)
        contention, pause = state.contention, state.pause
        if measured:
            contention, fruitless = _relief(snapshot, state)
            pause = pauses.finished(pause, snapshot, heard=quiet != state.quiet, fruitless=fruitless)
        return replace(state, contention=contention, quiet=quiet, watch=seen.watch, pause=pause), seen, True
    seen = look(snapshot, state.watch, state.quiet)
    if seen.worst is None:
        return replace(state, watch=seen.watch), seen, measured
    strain = seen.worst.value
    if measured and len(state.pause.groups) == 1:
        name = state.pause.groups[0]
        contention = state.contention
        if state.strain is not None:
            contention = contention.attribute(name, state.groups[name].share, state.strain, strain)
        pause = pauses.finished(state.pause, snapshot, heard=True)
        return replace(state, contention=contention, pause=pause, watch=seen.watch), seen, True
    smooth = strain if state.strain is None or strain > 2 else (1 - _SMOOTH) * state.strain + _SMOOTH * strain
    contention = state.contention
    # In a memory domain of its own a group is convicted by pauses alone: what is seen may be the machine's.
    free = {name for name in running if state.groups[name].apart and state.groups[name].share >= 1}
    running = {name: share for name, share in running.items() if name not in free}
    if resumed.isdisjoint(running) or strain > _HIGH:
        contention = contention.observe(strain, running, _traffic(snapshot))
    return replace(state, contention=contention, strain=smooth, watch=seen.watch), seen, False


def _relief(snapshot: Snapshot, state: ModelState) -> tuple[Contention, bool]:
    """What a pause of everybody says of groups that run in memory domains of their own, or of one that runs by itself
    and is hardly limited; and whether it was no relief to guaranteed work: then its strain is the machine's."""
    busy = {name: one for name, one in state.groups.items() if not one.idle}
    worst = look(snapshot, state.watch, state.quiet).worst
    alone = len(busy) == 1 and all(one.share >= _TELLING for one in busy.values())
    if worst is None or state.strain is None or not (alone or all(one.apart for one in busy.values())):
        return state.contention, False
    contention = state.contention
    for name in busy:
        contention = contention.attribute(name, sum(one.share for one in busy.values()), state.strain, worst.value)
    return contention, state.strain - worst.value < pauses.WORTH


def _decide(snapshot: Snapshot, state: ModelState, seen: Seen, measured: bool) -> tuple[ModelState, dict[str, Reason]]:
    """New shares, rungs and places. Without news about the strain only what a pause taught is used."""
    present = snapshot.of(PriorityClass.BEST_EFFORT)
    worst = seen.worst
    alpha = state.contention.alpha
    active = [one for one in present if one.group.name in alpha and not is_idle(one)]
    wanted = divide(
        _AIM,
        {one.group.name: alpha[one.group.name] for one in active},
        {one.group.name: one.group.weight for one in active},
        {one.group.name: _floor(one, snapshot) for one in active},
    )
    groups: dict[str, Contender] = {}
    reasons: dict[str, Reason] = {}
    for one in present:
        name = one.group.name
        now = state.groups[name]
        share, code, text = now.share, "held", "held"
        if worst is None:
            code, text = "silent", "nothing tells how guaranteed work fares: held for now"
        elif name in wanted and not now.rung.level:
            share, code, text = _next_share(now, wanted[name], worst, hold=seen.hold, measured=measured)
        share = max(share, _floor(one, snapshot))
        groups[name] = Contender(share, older(now.rung), now.place, now.idle, now.apart)
        reasons[name] = _reason(code, text, share, alpha.get(name), worst)
    pressed = state.pressed
    if worst is not None and not measured:
        pressed = _rungs(snapshot, state, seen, worst, groups, reasons)
        if Knob.DOMAINS in snapshot.knobs:
            _places(snapshot, wanted, worst, groups, reasons)
    moved = {name for name, one in groups.items() if one.place.domains != state.groups[name].place.domains}
    contention = state.contention.keep(groups.keys() - moved)
    return replace(state, groups=groups, contention=contention, pressed=pressed), reasons


def _next_share(one: Contender, wanted: float, worst: Strain, *, hold: bool, measured: bool) -> tuple[float, str, str]:
    now, strain = one.share, worst.value
    if not measured and _LOW <= strain <= _HIGH:
        return now, "held", "guaranteed work is where it should be"
    most = now if hold else now * (_FAST_UP if strain < _CALM and not measured else _MOST_UP)
    share = min(1.0, most, max(wanted, now / _MOST_DOWN))
    if now >= 1 and share > (_WORTH_APART if one.apart else _WORTH):
        return now, "unlimited", "a limit would be negligible"
    if share < 1 and abs(share - now) < _NEGLIGIBLE * now:
        return now, "held", "a change would be negligible"
    if share < now:
        return share, "tightened", f"{worst.group} is slowed down too much"
    if share > now:
        return share, "loosened", f"{worst.group} has room"
    return now, "unlimited" if now >= 1 else "held", "does no harm" if now >= 1 else "held"


def _rungs(
    snapshot: Snapshot,
    state: ModelState,
    seen: Seen,
    worst: Strain,
    groups: dict[str, Contender],
    reasons: dict[str, Reason],
) -> int:
    """At most one group goes one rung up or down. Returns for how long shares have not been enough."""
    present = {one.group.name: one for one in snapshot.of(PriorityClass.BEST_EFFORT)}
    active = [name for name, one in present.items() if not is_idle(one) and not one.applied.frozen]
    enough = any(groups[name].share > _floor(present[name], snapshot) for name in active)
    strain = worst.value if state.strain is None else state.strain
    if strain > _HIGH and active and not enough:
        steps = {name: ladder(present[name], snapshot) for name in active}
        open_groups = [name for name in active if groups[name].rung.level < len(steps[name])]
        if not open_groups or not pauses.fresh(state.pause, snapshot):
            return state.pressed + 1
        alpha = state.contention.alpha
        name = max(open_groups, key=lambda one: alpha.get(one, 0.0) / present[one].group.weight)
        before = groups[name].rung
        rung = climb(before, steps[name], snapshot.at, pressed=state.pressed + 1)
        groups[name] = replace(groups[name], rung=rung)
        if rung.level == before.level:
            return state.pressed + 1
        text = f"its least share is still too much for {worst.group}: {steps[name][rung.level - 1].text}"
        reasons[name] = _reason("next-rung", text, groups[name].share, alpha.get(name), worst)
    elif worst.value < _RECOVERED and not seen.hold:
        raised = [
            name for name, one in groups.items()
            if one.rung.level and not present[name].applied.frozen and not present[name].applied.evicted
        ]  # fmt: skip
        if raised:
            name = max(raised, key=lambda one: groups[one].rung.changed_at or 0.0)
            before = groups[name].rung
            rung = descend(before, snapshot.at)
            groups[name] = replace(groups[name], rung=rung)
            if rung.level < before.level:
                reasons[name] = _reason("recovering", "one rung down", groups[name].share, None, worst)
    return 0


def _places(
    snapshot: Snapshot,
    wanted: Mapping[str, float],
    worst: Strain,
    groups: dict[str, Contender],
    reasons: dict[str, Reason],
) -> None:
    """At most one group is moved: the one that would keep least where it is."""
    present = {one.group.name: one for one in snapshot.of(PriorityClass.BEST_EFFORT)}
    places = {name: one.place for name, one in groups.items()}
    for name in sorted(wanted, key=lambda one: wanted[one]):
        place = better_place(wanted[name], present[name], snapshot, places, places[name])
        if place is not None:
            groups[name] = replace(groups[name], place=place)
            text = (
                f"keeps {place.keeps:.0%} of its cores in domains of its own, {wanted[name]:.0%} beside {worst.group}"
            )
            reasons[name] = _reason("moved", text, groups[name].share, None, worst)
            return
    for name, now in groups.items():
        back = may_return(now.place, snapshot.at) if worst.value < _RECOVERED else None
        if back is not None:
            groups[name] = replace(_newcomer(present[name], snapshot), place=back)
            reasons[name] = _reason("returned", "tried again where it was found", groups[name].share, None, worst)
            return


def _release(snapshot: Snapshot, state: ModelState, code: str, text: str) -> tuple[Plan, ModelState]:
    """Nobody is limited. What was learnt is kept; who is limited again later starts low."""
    present = snapshot.of(PriorityClass.BEST_EFFORT)
    groups = {one.group.name: Contender(share=1.0) for one in present}
    reasons = {one.group.name: Reason(code, text) for one in present}
    return Plan({}, reasons), replace(state, groups=groups, pause=replace(state.pause, groups=()), strain=None)


def _plan(snapshot: Snapshot, state: ModelState, pause: Pause, reasons: dict[str, Reason]) -> tuple[Plan, ModelState]:
    settings: dict[str, Setting] = {}
    for one in snapshot.of(PriorityClass.BEST_EFFORT):
        name = one.group.name
        now = state.groups[name]
        step = limit(now.rung, ladder(one, snapshot), one)
        setting = Setting(share=now.share, domains=now.place.domains)
        if step is not None:
            setting = replace(step.setting, share=now.share, domains=now.place.domains)
        if name in pause.groups:
            setting = replace(setting, frozen=True)
            reasons[name] = Reason(MEASURING, pause.why, {"pause_s": pause.length_s, "then": reasons[name].as_json()})
        if setting != Setting():
            settings[name] = setting
    next_in_s = TICK_S
    if pause.groups:
        next_in_s = pause.length_s if pause.settled else pauses.SETTLE_S
    return Plan(settings, reasons, next_in_s), replace(state, pause=pause)


def _reason(code: str, text: str, share: float, alpha: float | None, worst: Strain | None) -> Reason:
    facts: dict[str, object] = {"share": round(share, 4)}
    if worst is not None:
        facts |= {"strain": round(worst.value, 3), "of": worst.group, "by": worst.sensor}
    if alpha is not None:
        facts["strain_per_share"] = round(alpha, 3)
    return Reason(code, text, facts)
