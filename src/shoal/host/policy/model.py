"""`model`: ours. It learns, for each best-effort group, what a unit of its share costs guaranteed work (`contention`),
and gives each the share at which all of them together cost nine tenths of what is allowed.

- A group that is new starts low and grows; every change is bounded, downwards less than upwards.
- What undisturbed means is measured again by pausing best-effort work for 50 ms every few seconds. Right after that one
  group at a time goes on alone where it is not known which of several disturbs, or whether one still does (`pauses`).
- A group that keeps more elsewhere is moved; one at its floor may be frozen for a time (`escalation`).
- While a sensor is silent nothing is loosened; when all have been silent for `HOLD_TICKS`, limits are lifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from shoal.core import PriorityClass, Reason
from shoal.host.policy import pauses
from shoal.host.policy.contention import LEAST_SENSITIVITY, TOLD, Contention, divide
from shoal.host.policy.escalation import Escalation, can_escalate, cool, holds, older
from shoal.host.policy.pauses import BASELINE_S, FRESH_S, LOOK_SHARE, NO_PAUSE, PROBE_SHARE, Pause
from shoal.host.policy.placing import Place, better_place, may_return
from shoal.host.policy.violation import Quiet, Seen, Violation, Watch, absorb, has_run, is_idle, look
from shoal.host.types import TICK_S, Control, GroupState, Plan, Setting, Snapshot

MEASURING = "measuring"
"""The code of the reason for which a group is frozen for a moment only."""
_AIM = 0.9
_SLOW_START = 0.05
_MOST_UP = 1.25
"""By how much a share grows in a tick at most, unless a probe has just told what the group costs."""
_ALLOWED = 1.0
_RECOVERED = 0.5
_NEGLIGIBLE = 0.12
"""A change of a share by less than this part is not worth a write."""
_CALM_TICK_S = 2 * TICK_S
"""While all best-effort work is in memory domains of its own, unlimited, and guaranteed work is as fast as promised:
each tick takes a millisecond of theirs."""
_EASY, _LEAST_PREDICTED, _EASY_TICKS = 0.3, 0.5, 4
"""When violation is below the part `_EASY` of what was predicted, and that was at least `_LEAST_PREDICTED`, for
`_EASY_TICKS` ticks, limited groups are tried again: they may have become harmless."""
_SLOW_TICKS = 5
"""Non-interfering groups are tried again when violation was above what is allowed for so long."""
_PRESUMED_TICKS = 10
"""After this number of such ticks, those in the same memory domain are blamed like others: each may cause too little to
be found interfering."""
_CLEAR = 5.0
"""Groups that cost this or more are not let go together, and a single one needs no probe: it floods."""
_BEARABLE = 2.0
"""The violation at which a group that is known to cost much is tried."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A best-effort group as the policy remembers it."""

    share: float = _SLOW_START
    escalation: Escalation = field(default_factory=Escalation)
    place: Place = field(default_factory=Place)
    idle: bool = False
    """It did nothing when it was looked at last."""
    elsewhere: bool = False
    """It shared no memory domain with guaranteed work then, as far as known."""
    non_interfering: bool = False
    """It is blamed for nothing until a probe finds it interfering it: one has cleared it, or it is elsewhere."""


@dataclass(frozen=True, slots=True)
class ModelState:
    contention: Contention = field(default_factory=Contention)
    quiet: Quiet = field(default_factory=Quiet)
    watch: Watch = field(default_factory=Watch)
    groups: Mapping[str, Suspect] = field(default_factory=dict)
    pause: Pause = NO_PAUSE
    violation: float | None = None
    """Smoothed."""
    slow: int = 0
    easy: int = 0
    """For how many ticks violation has been above what is allowed, or far below what was predicted."""


@dataclass(frozen=True, slots=True)
class Model:
    name: str = "model"

    def start(self) -> ModelState:
        return ModelState()

    def step(self, snapshot: Snapshot, state: ModelState) -> tuple[Plan, ModelState]:
        present = snapshot.of(PriorityClass.BEST_EFFORT)
        homes = frozenset[int]().union(*(one.domains for one in snapshot.of(PriorityClass.GUARANTEED)))
        groups: dict[str, Suspect] = {}
        resumed, moved = set[str](), set[str]()
        for one in present:
            name = one.group.name
            known = _known(state.groups.get(name), one, snapshot)
            idle = known.idle if one.applied.frozen else is_idle(one)
            elsewhere = bool(one.domains and homes) and one.domains.isdisjoint(homes)
            if known.idle and not idle:
                resumed.add(name)
            if elsewhere != known.elsewhere:
                moved.add(name)
            if known.non_interfering and not elsewhere and state.slow >= _PRESUMED_TICKS:
                known = replace(known, non_interfering=False)
            groups[name] = _as_seen(known, idle=idle, elsewhere=elsewhere)
        state = _forget(replace(state, groups=groups), moved)
        if not present:
            return Plan({}), replace(state, pause=NO_PAUSE, violation=None)
        if state.pause.groups and not state.pause.settled and Control.FREEZE in snapshot.controls:
            reasons = {name: Reason(MEASURING, "a pause to measure has begun") for name in groups}
            return _plan(snapshot, state, replace(state.pause, settled=True), reasons)
        state, seen, measured = _learn(snapshot, state, resumed)
        if not snapshot.of(PriorityClass.GUARANTEED):
            return _release(snapshot, state, "no-guaranteed", "there is no guaranteed work to protect")
        if seen.worst is None and not seen.hold:
            return _release(snapshot, state, "blind", "nothing tells how guaranteed work fares: limits are lifted")
        state, reasons = _decide(snapshot, state, seen, measured)
        pause, doubtful = state.pause, _doubtful(snapshot, state)
        probe, share = _probe(state, doubtful)
        if measured or (probe and _untold(state, probe) and pauses.fresh(pause, snapshot)):
            pause = pauses.next_probe(pause, snapshot, probe, share)
        else:
            pause = pauses.next_pause(snapshot, pause, limited=_limited(state), doubtful=doubtful)
        return _plan(snapshot, state, pause, reasons)


def _known(remembered: Suspect | None, one: GroupState, snapshot: Snapshot) -> Suspect:
    if remembered is None or not _is_there(remembered.place, snapshot):
        return _newcomer(one, snapshot)
    floor = _floor(one, snapshot)
    return remembered if remembered.share >= floor else replace(remembered, share=floor)


def _is_there(place: Place, snapshot: Snapshot) -> bool:
    """Whether the group can still be there: a hypervisor moves CPUs to other memory domains."""
    if place.domains is None:
        return True
    return Control.DOMAINS in snapshot.controls and place.domains <= {home.domain.id for home in snapshot.domains}


def _as_seen(one: Suspect, *, idle: bool, elsewhere: bool) -> Suspect:
    """What comes to be elsewhere is let go at once; what was elsewhere and is no longer is judged anew."""
    if elsewhere != one.elsewhere:
        return replace(
            one, share=1.0 if elsewhere else one.share, idle=idle, elsewhere=elsewhere, non_interfering=elsewhere
        )
    return one if idle == one.idle else replace(one, idle=idle)


def _forget(state: ModelState, names: Set[str]) -> ModelState:
    """What these groups cost, and that they were tried: they are elsewhere now, or gone."""
    here = state.groups.keys() - names
    contention, pause = state.contention.keep(here), state.pause
    if not here >= set(pause.failed):
        pause = replace(pause, failed=())
    if not names.isdisjoint(pause.probed):
        pause = replace(pause, probed={name: one for name, one in pause.probed.items() if name not in names})
    return replace(state, contention=contention, pause=pause)


def _doubtful(snapshot: Snapshot, state: ModelState) -> list[str]:
    """The groups of which a probe is to tell how much they disturb."""
    busy = {name: one for name, one in state.groups.items() if not (one.idle or one.escalation.frozen)}
    found = []
    for name, one in busy.items():
        last = state.pause.probed.get(name)
        age = float("inf") if last is None else snapshot.at - last.at
        if one.non_interfering:
            due = state.slow >= _SLOW_TICKS and age > BASELINE_S
        elif not _told(state, name):
            unclear = state.contention.sensitivity.get(name, 0.0) < _CLEAR
            due = (len(busy) > 1 or unclear) and (last is None or last.passed or age > FRESH_S)
        else:
            due = state.easy >= _EASY_TICKS and one.share < 1 and age > FRESH_S
        if due:
            found.append(name)
    return found


def _probe(state: ModelState, doubtful: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """The groups that are probed next, and with which share.

    Those of which nothing was told yet go together, since most do no harm: with a small share at first, and then with
    all of it unless that has shown a flood. Where it has, they go one by one. Their share then bounds what each can
    cost if it is the one that floods."""
    sensitivity, last = state.contention.sensitivity, state.pause.probed
    untold = tuple(name for name in doubtful if not _told(state, name))
    if any(name not in sensitivity and state.groups[name].share < LOOK_SHARE for name in untold):
        return untold, LOOK_SHARE
    flood = sum(sensitivity.get(name, 0.0) - LEAST_SENSITIVITY for name in untold) >= _CLEAR
    if len(untold) > 1 and not flood and not set(untold) <= set(state.pause.failed):
        return untold, PROBE_SHARE
    if not doubtful:
        return (), PROBE_SHARE
    name = min(doubtful, key=lambda one: (last[one].at if one in last else float("-inf"), one))
    suspects = [one for one in untold if one not in last] if name not in last else [name]
    most = max(LEAST_SENSITIVITY, sum(sensitivity.get(one, 0.0) for one in suspects))
    return (name,), min(PROBE_SHARE, _BEARABLE / most)


def _untold(state: ModelState, names: Sequence[str]) -> bool:
    return not any(_told(state, name) for name in names)


def _newcomer(one: GroupState, snapshot: Snapshot) -> Suspect:
    return Suspect(share=min(1.0, max(_SLOW_START, _floor(one, snapshot))))


def _floor(one: GroupState, snapshot: Snapshot) -> float:
    return min(1.0, max(one.group.min_share, snapshot.least_share))


def _running(snapshot: Snapshot) -> dict[str, float]:
    """Shares in force of the groups that disturbed, or could have."""
    return {
        one.group.name: one.applied.share
        for one in snapshot.of(PriorityClass.BEST_EFFORT)
        if not (one.applied.frozen or is_idle(one))
    }


def _limited(state: ModelState) -> bool:
    return any(one.share < 1 or one.escalation.frozen for one in state.groups.values())


def _learn(snapshot: Snapshot, state: ModelState, resumed: Set[str]) -> tuple[ModelState, Seen, bool]:
    """What this snapshot teaches. The last value: it shows a pause or a probe, so it says nothing about limits. Nor
    does it say what a unit of share costs where groups have `resumed`, which may have worked for a part of the time
    only."""
    running = _running(snapshot)
    held = {one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT) if one.applied.frozen}
    measured = bool(state.pause.groups or state.pause.probe) and held >= set(state.pause.groups)
    if measured and state.pause.probe:
        state = _judged(snapshot, state)
        return state, look(snapshot, state.watch), True
    seen = look(snapshot, state.watch)
    if not running:
        quiet = absorb(Quiet(), snapshot)
        pause, heard = state.pause, quiet != Quiet()
        if measured or heard:  # no best-effort work is as good as a pause
            pause = pauses.undisturbed(pause, snapshot, heard=heard)
        return replace(state, quiet=quiet if heard else state.quiet, watch=seen.watch, pause=pause), seen, True
    if seen.worst is None:
        return replace(state, watch=seen.watch), seen, measured
    violation, before = seen.worst.value, state.contention
    blamed = {name: share for name, share in running.items() if not state.groups[name].non_interfering}
    predicted = before.predict(blamed) or 0.0
    easy = state.easy + 1 if predicted >= _LEAST_PREDICTED and violation < _EASY * predicted else 0
    slow = state.slow + 1 if violation > _ALLOWED else 0
    if resumed.isdisjoint(blamed) or violation > _ALLOWED:
        before = before.observe(violation, blamed)
    return replace(state, contention=before, violation=violation, slow=slow, easy=easy, watch=seen.watch), seen, False


def _judged(snapshot: Snapshot, state: ModelState) -> ModelState:
    """What a probe shows: guaranteed work beside these groups alone, against the last pause."""
    names = state.pause.probe
    shown = {one.group.name: one for one in snapshot.of(PriorityClass.BEST_EFFORT) if one.group.name in names}
    worst = look(snapshot, state.watch, state.quiet).worst
    ran = len(shown) == len(names) and all(
        has_run(one, before=not state.groups[name].idle) for name, one in shown.items()
    )  # fmt: skip
    if worst is None or not ran:
        return replace(state, pause=pauses.probed(state.pause, snapshot.at, told=False))
    shares = {name: one.applied.share for name, one in shown.items()}
    least = min(shares.values())
    told = worst.value > _ALLOWED if least < PROBE_SHARE else len(names) == 1 or worst.value <= TOLD * least
    if not told and len(names) > 1:
        known = state.contention.keep(state.contention.sensitivity.keys() - set(names))
        pause = replace(state.pause, failed=names if least >= PROBE_SHARE else ())
        return replace(state, contention=known.observe(worst.value, shares), pause=pause)
    if not told:
        untried = [
            name for name in state.groups if name not in state.pause.probed and name in state.contention.sensitivity
        ]
        contention = state.contention.passed(names[0], worst.value / least, untried)
        return replace(state, contention=contention, pause=pauses.passed(state.pause, snapshot.at))
    contention, groups = state.contention, dict(state.groups)
    for name, share in shares.items():
        together = name in state.pause.failed  # with others it costs too much, whatever it costs alone
        contention = contention.probed(name, share, worst.value, least=0.0 if together else TOLD)
        others = len(groups) > 1 or groups[name].elsewhere  # else all violation is its own
        non_interfering = others and not together and contention.sensitivity[name] <= LEAST_SENSITIVITY
        groups[name] = replace(groups[name], non_interfering=non_interfering)
    pause = pauses.probed(state.pause, snapshot.at, told=True)
    if worst.value > TOLD * least:
        pause = replace(pause, failed=())
    return replace(state, groups=groups, contention=contention, pause=pause, easy=0)


def _decide(snapshot: Snapshot, state: ModelState, seen: Seen, measured: bool) -> tuple[ModelState, dict[str, Reason]]:
    """New shares, levels and places. Without news about the violation only what a pause taught is used."""
    present = snapshot.of(PriorityClass.BEST_EFFORT)
    worst = seen.worst
    sensitivity = state.contention.sensitivity
    active = [
        one for one in present
        if one.group.name in sensitivity and not (is_idle(one) or state.groups[one.group.name].non_interfering)
    ]  # fmt: skip
    wanted = divide(
        _AIM,
        {one.group.name: sensitivity[one.group.name] for one in active},
        {one.group.name: one.group.weight for one in active},
        {one.group.name: _floor(one, snapshot) for one in active},
    )
    groups: dict[str, Suspect] = {}
    reasons: dict[str, Reason] = {}
    for one in present:
        name = one.group.name
        now = state.groups[name]
        share, code, text = now.share, "held", "held"
        if worst is None:
            code, text = "silent", "nothing tells how guaranteed work fares: held for now"
        elif now.non_interfering and not now.escalation.frozen:
            share, code, text = 1.0, "unlimited", "does no harm"
        elif name in wanted and not now.escalation.frozen:
            told = _just_told(state, name, snapshot)
            share, code, text = _next_share(now, wanted[name], worst, hold=seen.hold, told=told)
        share = max(share, _floor(one, snapshot))
        groups[name] = Suspect(share, older(now.escalation), now.place, now.idle, now.elsewhere, now.non_interfering)
        reasons[name] = _reason(code, text, share, sensitivity.get(name), worst)
    if worst is not None and not measured:
        _escalate(snapshot, state, seen, worst, groups, reasons)
        if Control.DOMAINS in snapshot.controls:
            _places(snapshot, wanted, worst, groups, reasons)
    moved = {name for name, one in groups.items() if one.place.domains != state.groups[name].place.domains}
    contention = state.contention.keep(groups.keys() - moved)
    return replace(state, groups=groups, contention=contention), reasons


def _told(state: ModelState, name: str) -> bool:
    """Whether any probe has shown what the group costs."""
    last = state.pause.probed.get(name)
    return last is not None and last.told


def _just_told(state: ModelState, name: str, snapshot: Snapshot) -> bool:
    """Whether a probe has shown just now what the group costs."""
    return _told(state, name) and state.pause.probed[name].at == snapshot.at


def _next_share(one: Suspect, wanted: float, worst: Violation, *, hold: bool, told: bool) -> tuple[float, str, str]:
    """Down at once, up step by step unless a probe has just told what the group costs."""
    now = one.share
    share = min(1.0, now if hold else 1.0 if told else now * _MOST_UP, wanted)
    if share < 1 and abs(share - now) < _NEGLIGIBLE * now:
        return now, "held", "a change would be negligible"
    if share < now:
        return share, "tightened", f"{worst.group} is slowed down too much"
    if share > now:
        return share, "loosened", f"{worst.group} has room"
    return now, "unlimited" if now >= 1 else "held", "does no harm" if now >= 1 else "held"


def _escalate(
    snapshot: Snapshot,
    state: ModelState,
    seen: Seen,
    worst: Violation,
    groups: dict[str, Suspect],
    reasons: dict[str, Reason],
) -> None:
    """At most one group is frozen, or let go again."""
    present = {one.group.name: one for one in snapshot.of(PriorityClass.BEST_EFFORT)}
    active = [
        name for name, one in present.items()
        if not (is_idle(one) or one.applied.frozen or groups[name].non_interfering)
    ]  # fmt: skip
    enough = any(groups[name].share > _floor(present[name], snapshot) for name in active)
    violation = worst.value if state.violation is None else state.violation
    if violation > _ALLOWED and active and not enough:
        free = [name for name in active if not groups[name].escalation.frozen]
        if not free or not can_escalate(snapshot) or not pauses.fresh(state.pause, snapshot):
            return
        sensitivity = state.contention.sensitivity
        name = max(free, key=lambda one: sensitivity.get(one, 0.0) / present[one].group.weight)
        if cool(groups[name].escalation, snapshot.at):
            groups[name] = replace(groups[name], escalation=Escalation(True, snapshot.at))
            text = f"its least share is still too much for {worst.group}: frozen but for its least share"
            reasons[name] = _reason("next-level", text, groups[name].share, sensitivity.get(name), worst)
    elif worst.value < _RECOVERED and not seen.hold:
        frozen = [name for name, one in groups.items() if one.escalation.frozen and not present[name].applied.frozen]
        name = max(frozen, key=lambda one: groups[one].escalation.changed_at or 0.0, default="")
        if name and cool(groups[name].escalation, snapshot.at):
            groups[name] = replace(groups[name], escalation=Escalation(False, snapshot.at))
            reasons[name] = _reason("recovering", "let go again", groups[name].share, None, worst)


def _places(
    snapshot: Snapshot,
    wanted: Mapping[str, float],
    worst: Violation,
    groups: dict[str, Suspect],
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
    """No group is limited. What was learnt is kept; a group that is limited again later starts low."""
    present = snapshot.of(PriorityClass.BEST_EFFORT)
    groups = {one.group.name: Suspect(share=1.0) for one in present}
    reasons = {one.group.name: Reason(code, text) for one in present}
    return Plan({}, reasons), replace(state, groups=groups, pause=replace(state.pause, groups=()), violation=None)


def _plan(snapshot: Snapshot, state: ModelState, pause: Pause, reasons: dict[str, Reason]) -> tuple[Plan, ModelState]:
    settings: dict[str, Setting] = {}
    for one in snapshot.of(PriorityClass.BEST_EFFORT):
        name = one.group.name
        now = state.groups[name]
        frozen = can_escalate(snapshot) and holds(now.escalation, one)
        setting = Setting(share=now.share, domains=now.place.domains, frozen=frozen)
        if name in pause.probe:
            setting = replace(setting, share=max(pause.share, _floor(one, snapshot)), frozen=False)
        if name in pause.groups:
            setting = replace(setting, frozen=True)
        if name in pause.groups or name in pause.probe:
            reasons[name] = Reason(MEASURING, pause.why, {"pause_s": pause.length_s, "then": reasons[name].as_json()})
        if setting != Setting():
            settings[name] = setting
    calm = state.slow == 0 and all(one.elsewhere and one.share >= 1 for one in state.groups.values())
    next_in_s = _CALM_TICK_S if calm else TICK_S
    if pause.groups or pause.probe:
        next_in_s = pauses.SETTLE_S if not pause.settled else pauses.PROBE_S if pause.probe else pause.length_s
    return Plan(settings, reasons, next_in_s), replace(state, pause=pause)


def _reason(code: str, text: str, share: float, sensitivity: float | None, worst: Violation | None) -> Reason:
    facts: dict[str, object] = {"share": round(share, 4)}
    if worst is not None:
        facts |= {"violation": round(worst.value, 3), "of": worst.group, "by": worst.sensor}
    if sensitivity is not None:
        facts["sensitivity"] = round(sensitivity, 3)
    return Reason(code, text, facts)
