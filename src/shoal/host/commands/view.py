"""Tables and texts of `shoal guard`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.base.console import output
from shoal.core import Capability, PriorityClass

if TYPE_CHECKING:
    from shoal.host.guard.history import Change, Fault, Present
    from shoal.host.guard.loop import Tick
    from shoal.host.guard.replay import Replayed
    from shoal.host.linux.topology import Topology
    from shoal.host.types import GroupState, Plan, Reading, Setting, Snapshot

_UNKNOWN = "n/a"
_MOST_DIFFERENCES = 20
_MANY = 1000


def number(value: float | None, unit: str = "", digits: int = 3) -> str:
    """`n/a` for what is unknown."""
    return _UNKNOWN if value is None else f"{value:.{digits}g}{unit}"


def ratio(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.2f}x"


def gigabytes(per_s: float | None) -> str:
    return _UNKNOWN if per_s is None else f"{per_s / 1e9:.1f} GB/s"


def limits(setting: Setting | None) -> str:
    """`6 %, 2 cores`, or `-` if nothing is limited."""
    from shoal.host.linux import cpus

    if setting is None:
        return "-"
    parts = []
    if setting.frozen:
        parts.append("frozen")
    if setting.share < 1:
        parts.append(f"{100 * setting.share:.3g} %")
    if setting.cores is not None:
        parts.append(f"{setting.cores} cores")
    if setting.prefetching is not None:
        parts.append(f"prefetchers on {setting.prefetching}")
    if setting.domains is not None:
        parts.append(f"domains {','.join(map(str, sorted(setting.domains)))}")
    if setting.cpus is not None:
        parts.append(f"CPUs {cpus.render(setting.cpus)}")
    if setting.weight is not None:
        parts.append(f"weight {setting.weight:.3g}x")
    return ", ".join(parts) or "-"


def replayed_json(found: Sequence[Replayed], policy: str | None) -> dict[str, Any]:
    differences = [
        {
            "tick": one.record.number, "at": one.record.at, "group": name,
            "was": setting_json_of(one.record.plan, name), "now": setting_json_of(one.plan, name),
        }
        for one in found for name in one.differs
    ]  # fmt: skip
    return {"ticks": len(found), "policy": policy, "differing": sum(bool(one.differs) for one in found),
            "differences": differences}  # fmt: skip


def setting_json_of(plan: Plan, name: str) -> dict[str, Any]:
    from shoal.host.guard.history import setting_json
    from shoal.host.types import UNLIMITED

    return setting_json(plan.settings.get(name, UNLIMITED))


def replayed(found: Sequence[Replayed], policy: str | None) -> None:
    differing = [one for one in found if one.differs]
    who = f"{policy} would have decided" if policy else "the same policy decides"
    if not differing:
        print(f"{len(found)} ticks: {who} the same at every one")
        return
    print(f"{len(found)} ticks: {who} otherwise at {len(differing)} of them")
    if policy:
        print("this is what it would have decided on what was seen, not what it would have achieved")
    rows = [
        [one.record.number, name, limits(one.record.plan.settings.get(name)), limits(one.plan.settings.get(name))]
        for one in differing[:_MOST_DIFFERENCES] for name in one.differs
    ]  # fmt: skip
    output.put(output.table(["tick", "group", "was", "now"], rows))
    if len(differing) > _MOST_DIFFERENCES:
        print(f"... and {len(differing) - _MOST_DIFFERENCES} ticks more (--json has all)")


def changes(found: Sequence[Change], group: str | None) -> None:
    if not found:
        print(f"no limit of {group} was ever changed" if group else "no limit was ever changed")
        return
    rows = [
        [
            output.moment(one.at), one.group, limits(one.before), limits(one.setting), ", ".join(one.by) or "-",
            (one.reason.text if one.reason else "-") + _numbers(one.reason.facts if one.reason else {}),
        ]
        for one in found
    ]  # fmt: skip
    output.put(output.table(["when", "group", "was", "became", "by", "why"], rows))


def _numbers(facts: Any) -> str:
    """The two that a person asks for first."""
    if "violation" not in facts:
        return ""
    return f" ({facts['violation']:.2f} of what is allowed, by {facts.get('by', _UNKNOWN)})"


def status(found: Present) -> None:
    record = found.record
    state = f"runs (pid {found.head.pid})" if found.running else "does not run"
    mode = ", dry run: nothing is applied" if record.dry_run else ""
    print(f"guard {state}, policy {found.head.policy}{mode}; last tick {output.duration(found.age_s)} ago")
    snapshot(record.snapshot, record.plan, None if record.dry_run else record.applied)
    faults(found.faults)


def faults(found: Sequence[Fault]) -> None:
    """Each text once, with when it was last and how often."""
    last = {one.text: one.at for one in found}
    for text, at in sorted(last.items(), key=lambda one: one[1]):
        times = sum(one.text == text for one in found)
        print(f"fault: {output.moment(at)} {text}{f' ({times} times)' if times > 1 else ''}")


def plan_line(found: Tick) -> None:
    """One tick of a dry run, in a line."""
    slow = [
        f"{one.group.name} {ratio(one.slowdown)}" + (f", waits {_percent(one.waiting)}" if one.starved else "")
        for one in found.snapshot.of(PriorityClass.GUARANTEED)
    ]
    plans = [f"{name}: {limits(one)}" for name, one in sorted(found.plan.settings.items())]
    why = "; ".join(dict.fromkeys(one.text for one in found.plan.reasons.values()))
    print(f"{', '.join(slow) or 'no guaranteed group'} -> {', '.join(plans) or 'no limits'} ({why})", flush=True)
    for fault in found.faults:
        print(f"fault: {fault}", flush=True)


def tick_json(found: Tick) -> dict[str, Any]:
    return {
        "tick": found.number, "at": found.at,
        "slowdown": {one.group.name: one.slowdown for one in found.snapshot.of(PriorityClass.GUARANTEED)},
        "waiting": {one.group.name: one.waiting for one in found.snapshot.of(PriorityClass.GUARANTEED)},
        "plan": {name: setting_json_of(found.plan, name) for name in sorted(found.plan.settings)},
        "reasons": {name: one.as_json() for name, one in found.plan.reasons.items()},
        "faults": list(found.faults), "dry_run": found.dry_run,
    }  # fmt: skip


def snapshot(seen: Snapshot, plan: Plan, in_force: Mapping[str, Setting] | None = None) -> None:
    """The limits shown are those in force; of a dry run (None), those planned."""
    rows = [_group(one, plan, in_force) for one in seen.groups]
    columns = ["group", "class", "slowdown", "waits", "step", "rate", "memory", "cpus", "limits", "why"]
    output.put(output.table(columns, rows))
    warnings(seen)
    rows = [
        [
            str(one.domain.id), str(len(one.domain.cpus)), gigabytes(one.bandwidth.known()),
            number(one.latency_ns.known(), " ns"), number(one.saturation.known()),
        ]
        for one in seen.domains
    ]  # fmt: skip
    if rows:
        output.put(output.table(["domain", "cpus", "memory", "latency", "saturation"], rows))


def _group(one: GroupState, plan: Plan, in_force: Mapping[str, Setting] | None) -> list[str]:
    name = one.group.name
    guaranteed = one.group.priority_class is PriorityClass.GUARANTEED
    reason = plan.reasons.get(name)
    planned = shown = limits(plan.settings.get(name))
    if in_force is not None and (shown := limits(in_force.get(name))) != planned:
        shown = f"{shown} (planned: {planned})"
    return [
        name, one.group.priority_class.value, ratio(one.slowdown) if guaranteed else "-",
        _percent(one.waiting) if guaranteed else "-", _step(one.step_s), _rate(one.rate),
        gigabytes(one.bandwidth.known()), number(one.cpus.known()),
        shown, reason.text if reason else "-",
    ]  # fmt: skip


def warnings(seen: Snapshot, group: str | None = None) -> None:
    """What no limit and no slowdown shows, of one group or all."""
    for one in seen.groups:
        if group not in (None, one.group.name):
            continue
        if one.unmatched:
            print(f"warning: {unmatched(one.group.name, one.unmatched)}")
        if one.starved:
            print(f"warning: {_starved(one)}")
        if (throttled := _more_than_allowed(one.throttled, one)) is not None:
            print(
                f"warning: {one.group.name}: its CPU quota ran out in {_percent(throttled)} of the periods: raise "
                "cpu.max of its cgroup; its slowdown is of CPU time only"
            )
        if (steal := _more_than_allowed(seen.steal, one)) is not None:
            print(
                f"warning: {one.group.name}: the hypervisor takes {_percent(steal)} of the CPU time, more than it may "
                "lose; no limit here helps"
            )


def _more_than_allowed(lost: Reading, one: GroupState) -> float | None:
    """The part of its time that guaranteed work loses to something else than memory, if that is more than allowed."""
    from shoal.host.policy.violation import allowed_loss

    value = lost.known()
    guaranteed = one.group.priority_class is PriorityClass.GUARANTEED
    return value if guaranteed and value is not None and value > allowed_loss(one) else None


def unmatched(group: str, what: str) -> str:
    return f"{group}: no process matches: {what}"


def _starved(one: GroupState) -> str:
    return (
        f"{one.group.name}: waits for a CPU {_percent(one.waiting)} of the time that it could run, and gets "
        f"{number(one.cpus.known())} CPUs of {one.group.cpus:g} that it was promised; its slowdown is of CPU time only"
    )


def _percent(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{100 * value:.0f} %"


def _step(reading: Reading) -> str:
    value = reading.known()
    return _UNKNOWN if value is None else f"{value * 1e3:.3g} ms"


def _rate(reading: Reading) -> str:
    value = reading.known()
    return number(value, "/s") if value is None or value < _MANY else f"{value:.0f}/s"


def doctor(places: Topology, found: Mapping[str, Sequence[Capability]], absent: Mapping[str, str]) -> None:
    """`absent` is what of each group's definition matches no process."""
    rows = [
        [
            str(one.id), ",".join(map(str, sorted(one.cpus))), ",".join(map(str, sorted(one.nodes))),
            ", ".join(one.accelerators) or "-",
        ]
        for one in places.domains
    ]  # fmt: skip
    output.put(output.table(["domain", "cpus", "nodes", "accelerators"], rows))
    print(f"domains by {places.source}")
    for one in places.disagreements:
        print(f"note: {one}")
    for title, some in found.items():
        print()
        rows = [[one.name, "yes" if one.available else "no", one.detail] for one in some]
        output.put(output.table([title, "works", "detail"], rows))
    print()
    for missing in (one for some in found.values() for one in some if not one.available and one.consequence):
        print(f"without {missing.name}: {missing.consequence}")
    for name, what in absent.items():
        print(f"warning: {unmatched(name, what)}")
