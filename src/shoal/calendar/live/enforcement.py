"""The calendar's part in decisions: a snapshot as `keeping` takes it, and what it says as reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from shoal.admission import Additions, Blocker, Layout, Pending, Preemption, Snapshot
from shoal.calendar.keeping import CPU, FOREVER, MEMORY, Amount, Ask, Book, Load, Verdict
from shoal.calendar.live.plans import Plans
from shoal.calendar.schedule import shown_at
from shoal.calendar.windows import Window
from shoal.core import ANY, Affinity, PriorityClass, Reason, Resources
from shoal.extension import LiveJob, Server

CODE = "calendar"
_LOOK_S = 30.0
_MOST_TRIES = 16
"""The maximum number of orders of jobs that are tried before something else changes."""


class WindowEnforcer:
    """`notice_s`: so long before a window begins, what is in its way is asked to leave. Jobs without a time limit start
    in its place no more for `lead_s` before it."""

    def __init__(self, server: Server, plans: Plans, *, notice_s: float, lead_s: float) -> None:
        self._server, self._plans = server, plans
        self._notice_s, self._lead_s = notice_s, max(lead_s, notice_s)
        self._limits: dict[str, float | None] = {}
        self._seen: tuple[Snapshot, Book, Mapping[str, Verdict]] | None = None
        self._turn = self._tries = 0

    # --- what is known of jobs ---

    def moved(self, job: LiveJob) -> None:
        if job.job.state.terminal:
            self._limits.pop(job.job.id, None)
        elif self._plans.all() and job.job.id not in self._limits:
            self._limits[job.job.id] = _limit(job)
        self._tries = 0

    def _left_s(self, job_id: str) -> float | None:
        """How long a job may still run at most; None: it has no limit."""
        live = self._server.job(job_id)
        if live is None:
            return None
        if job_id not in self._limits:
            self._limits[job_id] = _limit(live)
        limit = self._limits[job_id]
        return None if limit is None else max(0.0, limit - live.job.ran_s)

    # --- the decision ---

    def _look(self, snapshot: Snapshot) -> tuple[Book, Mapping[str, Verdict]]:
        if self._seen is not None and self._seen[0] is snapshot:
            return self._seen[1:]
        windows = self._plans.windows(snapshot.now)
        if not windows:
            return Book(snapshot.now, {}, (), ()), {}
        nodes = capacities(snapshot)
        book = Book(snapshot.now, nodes, self._loads(snapshot), windows, self._lead_s)
        verdicts = book.verdicts(self._asks(snapshot, nodes)) if book.claims else {}
        self._seen = snapshot, book, verdicts
        return book, verdicts

    def _loads(self, snapshot: Snapshot) -> list[Load]:
        layout = snapshot.nodes.layout
        ends = {one.job_id: self._end(one.job_id, one.latest_end) for one in snapshot.running.values()}
        last: dict[tuple[str, str], str] = {}  # of those that share a device, the one that has it longest
        for running in snapshot.running.values():
            for place in running.placement:
                for device in place.devices:
                    other = last.get((place.node, device))
                    if other is None or ends[other] < ends[running.job_id]:
                        last[place.node, device] = running.job_id
        loads = []
        for running in snapshot.running.values():
            holds: dict[str, dict[str, int]] = {}
            for place in running.placement:
                if place.node not in layout.position:
                    continue
                on = holds.setdefault(place.node, {CPU: 0, MEMORY: 0})
                on[CPU] += running.resources.cpu_milli
                on[MEMORY] += running.resources.memory_bytes
                for device in place.devices:
                    kind = layout.type_of[layout.position[place.node]].get(device)
                    if kind is not None and last[place.node, device] == running.job_id:
                        on[kind] = on.get(kind, 0) + 1
            loads.append(Load(running.job_id, running.tenant, holds, ends[running.job_id]))
        return loads

    def _end(self, job_id: str, latest_end: float | None) -> float:
        live = self._server.job(job_id)
        return FOREVER if latest_end is None else latest_end + (live.manifest.grace_s if live is not None else 0.0)

    def _asks(self, snapshot: Snapshot, nodes: Mapping[str, Amount]) -> list[Ask]:
        order = sorted(
            snapshot.pending.by_id.values(),
            key=lambda job: (job.priority_class is not PriorityClass.GUARANTEED, -job.priority, job.queued_at),
        )
        at = self._turn % len(order) if order else 0
        layout = snapshot.nodes.layout
        known: dict[tuple[Affinity, Resources], tuple[Mapping[str, int], frozenset[str]]] = {}
        asks = []
        for job in (*order[at:], *order[:at]):
            shape = job.affinity, job.resources
            if shape not in known:
                known[shape] = _rank(job.resources), _places(layout, job, nodes)
            rank, places = known[shape]
            asks.append(Ask(job.job_id, job.tenant, rank, job.most, self._left_s(job.job_id), places))
        return asks

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        _, verdicts = self._look(snapshot)
        return {job_id: self._reason(verdict, job_id) for job_id, verdict in verdicts.items() if verdict.held}

    def keeps_off(self, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
        _, verdicts = self._look(snapshot)
        return {job_id: frozenset(verdict.off) for job_id, verdict in verdicts.items() if not verdict.held}

    def adjust(self, snapshot: Snapshot) -> Additions:
        """Those in the way of a window that begins soon, or has begun, are asked to leave."""
        book, _ = self._look(snapshot)
        if not book.claims:
            return Additions()
        losses = {job_id: _loss(snapshot, job_id) for job_id in snapshot.running}
        found = book.leaving(self._notice_s, losses)
        return Additions(
            preemptions=[
                Preemption(job_id, "", self._leaves(window))
                for job_id, window in found.items() if not snapshot.running[job_id].stopping
            ]
        )  # fmt: skip

    def decided(self) -> None:
        """Jobs that may be in each other's way get what is left in turn, so that one that cannot start blocks none."""
        verdicts = self._seen[2] if self._seen is not None else {}
        if self._tries < _MOST_TRIES and any(one.contended for one in verdicts.values()):
            self._tries += 1
            self._turn += max(1, len(verdicts) // _MOST_TRIES)
            self._seen = None
            self._server.wake()

    # --- why ---

    def _reason(self, verdict: Verdict, job_id: str) -> Reason:
        window = min(verdict.off.values(), key=lambda one: one.begin)
        limit = self._left_s(job_id)
        runs = "it has no time limit" if limit is None else f"it may run for {limit / 3600:.1f} h"
        places = "its nodes are" if len(verdict.off) > 1 else f"node {min(verdict.off)} is"
        text = f"{places} {_what(window)} {_span(window)}, and {runs}"
        facts: dict[str, object] = {"begin": window.begin, "end": window.end, "nodes": sorted(verdict.off)}
        if verdict.until is not None:
            facts["starts_at"] = verdict.until
        return Reason(CODE, text, facts)

    def _leaves(self, window: Window) -> Reason:
        return Reason(
            CODE, f"leaves, for its place is {_what(window)} {_span(window)}",
            {"begin": window.begin, "end": window.end},
        )  # fmt: skip

    def explain(self, snapshot: Snapshot, job: LiveJob) -> Iterator[Blocker]:
        book, verdicts = self._look(snapshot)
        verdict = verdicts.get(job.job.id)
        if verdict is not None:
            change = "let `max_runtime` end before that, or wait until it is over"
            yield Blocker(CODE, verdict.held, self._reason(verdict, job.job.id), change)
        for load in book.loads if job.job.id in snapshot.running else ():
            if load.job_id == job.job.id:
                yield from _warned(book, load, self._notice_s)

    # --- time ---

    async def watch(self, changed: asyncio.Event) -> None:
        """Decide anew whenever a window begins, ends, or is about to begin."""
        while True:
            changed.clear()
            now = self._server.clock.now()
            windows = self._plans.windows(now)
            times = [at for one in windows for at in (one.begin - self._notice_s, one.begin, one.end) if at > now]
            wait_s = min([_LOOK_S, *(at - now for at in times)])
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.01, wait_s))
            self._seen = None
            if windows or self._plans.all():
                self._server.wake()


def capacities(snapshot: Snapshot) -> dict[str, Amount]:
    """What each node has."""
    found: dict[str, Amount] = {}
    for node in snapshot.nodes.layout.nodes:
        whole = node.capacity()
        found[node.name] = {**whole.accelerators, CPU: whole.cpu_milli, MEMORY: whole.memory_bytes}
    return found


def _rank(resources: Resources) -> Mapping[str, int]:
    return {**resources.accelerators, CPU: resources.cpu_milli, MEMORY: resources.memory_bytes}


def _places(layout: Layout, job: Pending, nodes: Mapping[str, Amount]) -> frozenset[str]:
    """The nodes that a job's own labels and taints leave, and that have its devices."""
    sites = layout.sites(job.affinity)
    names = layout.names if sites is None else [layout.names[at] for at in sites.at]
    return frozenset(name for name in names if _may_hold(nodes[name], job.resources.accelerators))


def _may_hold(capacity: Amount, asked: Mapping[str, int]) -> bool:
    """Whether a node has the devices of one rank at all."""
    most = max((count for kind, count in capacity.items() if kind[0] != "/"), default=0)
    return all((most if kind == ANY else capacity.get(kind, 0)) >= count for kind, count in asked.items())


def _limit(job: LiveJob) -> float | None:
    longest = job.manifest.max_runtime_s
    return None if longest is None else longest + job.manifest.grace_s


def _loss(snapshot: Snapshot, job_id: str) -> float:
    """What ends first: best-effort work before guaranteed, then what loses the least."""
    running = snapshot.running[job_id]
    lost = running.at_risk_s if running.at_risk_s is not None else max(0.0, snapshot.now - running.started_at)
    return lost + (1e12 if running.priority_class is PriorityClass.GUARANTEED else 0.0)


def _what(window: Window) -> str:
    """Without the names of others: a tenant learns that something is reserved, not for whom."""
    return "in maintenance" if window.plan.tenant is None else "reserved"


def _span(window: Window) -> str:
    begin, end = shown_at(window.begin, window.plan.zone), shown_at(window.end, window.plan.zone)
    return f"from {begin} to {end.split(' ', 1)[1] if begin[:10] == end[:10] else end}"


def _warned(book: Book, load: Load, notice_s: float) -> Sequence[Blocker]:
    """What a running job has to expect."""
    for claim in book.claims:
        whole = sorted(node for node in load.holds if node in claim.whole)
        if whole and claim.window.plan.tenant != load.tenant and claim.window.begin < load.end:
            text = f"node {whole[0]} is {_what(claim.window)} {_span(claim.window)}: it is asked to leave before"
            facts = {"begin": claim.window.begin, "end": claim.window.end, "leaves_at": claim.window.begin - notice_s}
            return (Blocker(CODE, False, Reason(CODE, text, facts)),)
    return ()
