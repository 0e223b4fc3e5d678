"""The gateway's heart: every protocol's front asks it, and it asks directory, scheduler and replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path

from shoal.core import ShoalError
from shoal.inference.errors import BadRequest
from shoal.inference.opening import LoadReport
from shoal.inference.registry import is_steady
from shoal.inference.tensors import batch_key, check_request, samples_in
from shoal.inference.types import InferRequest, InferResponse, ModelMetadata, Tensor
from shoal.serve.contract import GatewayConfig, ModelState, VersionStatus
from shoal.serve.errors import NotReady, RateLimited, UnknownModel
from shoal.serve.gateway.conditions import summed_up
from shoal.serve.gateway.directory import Directory, Entry, patience_s
from shoal.serve.gateway.dispatcher import Call, Dispatcher, DispatchQueue, Pinned
from shoal.serve.gateway.kept import KeptStates
from shoal.serve.gateway.meter import Meter
from shoal.serve.gateway.replicas.replica_handle import Replica
from shoal.serve.gateway.replicas.replica_set import ReplicaSet
from shoal.serve.gateway.stats import Stats
from shoal.serve.gateway.stepping import Stepper
from shoal.serve.scheduling import CostBucket, Profiles, make_scheduler
from shoal.serve.scheduling.interface import QueueSpec

_LONGEST_WAIT_S = 60.0
"""For a model's first load, where a request has no deadline."""
_WAY_S, _WAY_SHARE = 0.005, 0.1
"""How much of a caller's time is kept for the way to it and back, at most, and as a share: its clock began before ours,
and what is in time only just would be late there."""
LATE = 2.0
"""Requests without a timeout of their own are answered at this multiple of the service's objective, done or not."""
_SHADOW_PATIENCE_S = 5.0
_AHEAD_S = 0.002
"""Several times what a batch is on its way to a replica and back: executions shorter than this are sent ahead."""
_MOST_COPIES = 64
"""The most copies in flight to a shadow: each holds its inputs in memory, and no client waits for it."""


class Gateway:
    """What the protocol's fronts (REST, gRPC) ask. A tenant sees its own models only; the empty tenant sees all.
    `follow` tells it what to serve; a registry tells its set of replicas who has joined."""

    def __init__(
        self,
        *,
        slots: int,
        scheduler: str = "deadline",
        meter: Meter,
        kept: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept` is the folder of what runtimes keep beyond the end of their process."""
        self.slots = slots
        self.meter = meter
        self.directory = Directory()
        self.stats: dict[str, Stats] = {}
        self.replica_set = ReplicaSet(self.directory, self, KeptStates(kept))
        self._profiles = Profiles()
        self._scheduler = make_scheduler(scheduler, slots=slots, profiles=self._profiles, ahead_s=_AHEAD_S)
        self.dispatcher = Dispatcher(self._scheduler, self, clock=clock)
        self._entries: dict[str, Entry] = {}
        self._buckets: dict[str, CostBucket] = {}
        self._news: dict[str, asyncio.Event] = {}
        self.stepper = Stepper(self)

    # --- what to serve

    def follow(self, config: GatewayConfig) -> None:
        """Serve what the configuration says, from now on. What is not in it any more is refused and let go. Raises
        Invalid for one that makes no sense, and goes on as before."""
        self.directory = Directory.of(config, self.directory)
        before, self._entries = self._entries, {}
        for entry in self.directory:
            self._entries.update((entry.key(version), entry) for version in entry.versions)
        self.replica_set.follow(self.directory)
        self._limit()
        for key, entry in before.items():
            now = self._entries.get(key)
            if now is not None and now.service_id == entry.service_id:
                continue
            self.stepper.sequences.lose_queue(key, "its model was undeployed")
            self.dispatcher.close_queue(key, UnknownModel("it was undeployed", where=f"model {entry.name!r}"))
            self._profiles.by_key.pop(key, None)
            self.replica_set.forget(key)
            self._announce(key)
        self.stats = {key: one for key, one in self.stats.items() if one.service_id in self.directory.services}
        for entry in self.directory:
            for version in entry.versions:
                self._open(entry, version)
        self.meter.follow(config)

    def _open(self, entry: Entry, version: str) -> None:
        key = entry.key(version)
        stats = self.stats.get(key)
        if stats is None or stats.service_id != entry.service_id:
            stats = self.stats[key] = Stats(entry.name, version, entry.service_id)
        stats.shadow = entry.shadows(version)
        known = self.dispatcher.queues.get(key)
        if known is None:
            spec = self._queue_spec(entry, version, 1)
            self.dispatcher.open_queue(DispatchQueue(spec, entry.service_id, entry.name, version, stats))
        else:
            known.service_id, known.stats = entry.service_id, stats
        self.changed(key)

    def _queue_spec(self, entry: Entry, version: str, max_batch: int, rows: int = 1) -> QueueSpec:
        return QueueSpec(
            key=entry.key(version),
            tenant=entry.service.tenant,
            weight=entry.weight,
            priority_class=entry.priority_class(version),
            max_batch=max_batch,
            slots=max(1, min(entry.versions[version].threads, self.slots)),
            executors=0,
            slo_s=entry.service.slo_p99_s,
            steady=is_steady(entry.versions[version].runtime),
            rows=rows,
        )

    def _limit(self) -> None:
        buckets, self._buckets = self._buckets, {}
        for service_id, spec in self.directory.services.items():
            if spec.rate_limit is None:
                continue
            known = buckets.get(service_id)
            if known is None or (known.rate, known.burst_s) != (spec.rate_limit, spec.burst_s):
                known = CostBucket(spec.rate_limit, spec.burst_s, now=self.dispatcher.clock())
            self._buckets[service_id] = known

    def admits(self, digest: str) -> bool:
        """Whether a replica with a token of this digest may join."""
        return digest in self.directory.deployments

    async def close(self) -> None:
        """What waits fails; what is being executed is answered."""
        self.stepper.close()
        await self.replica_set.close()
        self.dispatcher.close(NotReady("the gateway is being stopped"))
        for key in [*self._news]:
            self._announce(key)

    # --- calls

    def tenant_of(self, token: str | None) -> str | None:
        """The tenant of a bearer token: its name, "" for the administrator, None for an unknown token."""
        return self.directory.owner(token)

    async def infer(self, request: InferRequest) -> InferResponse:
        if request.sequence is not None:
            return await self.stepper.infer(request, request.sequence)
        asked = request.version
        while True:
            entry = self.directory.find(request.tenant, request.model)
            version = request.version
            if version is None or (asked is None and version not in entry.versions):
                version = entry.router.choose(self.takes(entry)) or entry.main
            else:
                entry.check(version)
            key = entry.key(version)
            queue, report = self.dispatcher.queues[key], self.replica_set.reports.get(key)
            if not queue.executors:
                self.seek(entry, queue)
            if report is None:
                request = await self.until_loaded(entry, queue, request)
                continue
            call = self.take(entry, queue, request, report.metadata)
            assert call.future is not None
            try:
                return await call.future
            except asyncio.CancelledError:
                self.dispatcher.withdraw(call)
                raise
            except UnknownModel:
                still_there = entry.name in self.directory.entries.get(entry.service.tenant, {})
                if asked is not None or key in self.dispatcher.queues or not still_there:
                    raise
            request = self.later(entry, request, call.item.arrived)  # an update took its version away: another's turn

    def take(
        self, entry: Entry, queue: DispatchQueue, request: InferRequest, metadata: ModelMetadata, *,
        pinned: Pinned | None = None,
        shadow: bool = False,
    ) -> Call:  # fmt: skip
        """Accept a request for execution; a step of a sequence is `pinned`. A `shadow`'s is a copy of another. Raises
        BadRequest or Overloaded."""
        check_request(request, metadata)
        samples, key = samples_in(request, metadata), batch_key(request)
        if pinned is not None:
            if samples != 1:
                what = f"a step of a sequence is one sample, and not {samples}"
                raise BadRequest(what, where=f"model {entry.name!r}", hint="send one after the other")
            key = (key, pinned.replica.name)
        now = self.dispatcher.clock()
        if shadow:
            return self.dispatcher.submit(
                queue, request, now, deadline=now + _SHADOW_PATIENCE_S, samples=samples, batch_key=key, shadow=True,
                pinned=pinned,
            )  # fmt: skip
        size = sum([len(tensor.data) for tensor in request.inputs]) / samples
        charged_s = self._charge(entry, queue, samples, size, now) if self._buckets else 0.0
        patience = patience_s(entry, request)
        try:
            call = self.dispatcher.submit(
                queue, request, now,
                deadline=inf if patience is None else now + patience - _way_s(patience), samples=samples,
                size=size, given_up_at=inf if patience is None else now + _given_up_s(request, patience),
                batch_key=key, charged_s=charged_s, pinned=pinned,
            )  # fmt: skip
        except ShoalError:
            self._settle(queue, charged_s, 0.0)
            raise
        if pinned is None and entry.router.route.shadow is not None:
            self._shadow(entry, request)
        return call

    def seek(self, entry: Entry, queue: DispatchQueue) -> None:
        """No replica can execute the model now: have one load it. Raises NotReady with the reason if none is going
        to."""
        if not self.replica_set.seek(entry.service_id, queue.spec.key):
            queue.stats.failed(0.0, time.time())
            raise self._not_ready(entry, queue.version)

    def _not_ready(self, entry: Entry, version: str) -> NotReady:
        why = self.replica_set.why_not(entry.service_id, entry.key(version))
        return NotReady(f"version {version} is ready nowhere: {why}", where=f"model {entry.name!r}")

    async def until_loaded(self, entry: Entry, queue: DispatchQueue, request: InferRequest) -> InferRequest:
        """Wait until the model was loaded for the first time; before that it is unknown what requests it takes. Returns
        the request to repeat: for this version, with the time that is left. Raises NotReady if the model is not loaded
        in time."""
        began = self.dispatcher.clock()
        patience = patience_s(entry, request)
        news = self._news.setdefault(queue.spec.key, asyncio.Event())
        try:
            async with asyncio.timeout(_LONGEST_WAIT_S if patience is None else patience):
                await news.wait()
        except TimeoutError:
            queue.stats.failed(self.dispatcher.clock() - began, time.time())
            raise self._not_ready(entry, queue.version) from None
        return replace(self.later(entry, request, began), version=queue.version)

    def later(self, entry: Entry, request: InferRequest, began: float) -> InferRequest:
        """The request with what is left of its time, if that is limited."""
        patience = patience_s(entry, request)
        if patience is None:
            return request
        return replace(request, timeout_s=max(0.0, patience - (self.dispatcher.clock() - began)))

    def _charge(self, entry: Entry, queue: DispatchQueue, samples: int, size: float, now: float) -> float:
        """Take the expected cost from the service's bucket, if it has one. Raises RateLimited."""
        bucket = self._buckets.get(entry.service_id)
        if bucket is None:
            return 0.0
        profile = self._profiles.of(queue.spec.key)
        cost_s = profile.expected_s(samples) * profile.scale(size) * queue.spec.slots
        retry_after_s = bucket.take(cost_s, now)
        if retry_after_s > 0:
            queue.stats.refused(0.0, "rate-limit")
            raise RateLimited(
                f"service {entry.service.name!r} used up its {bucket.rate:g} compute-seconds per second",
                where=f"model {entry.name!r}", retry_after_s=retry_after_s,
                hint="ask again later, or raise its rate_limit",
            )  # fmt: skip
        return cost_s

    def _settle(self, queue: DispatchQueue, charged_s: float, took_s: float) -> None:
        bucket = self._buckets.get(queue.service_id)
        if bucket is not None:
            bucket.settle(charged_s, took_s, self.dispatcher.clock())

    def _shadow(self, entry: Entry, request: InferRequest) -> None:
        version = entry.router.shadow(self.takes(entry))
        if version is None:
            return
        queue = self.dispatcher.queues[entry.key(version)]
        report = self.replica_set.reports.get(queue.spec.key)
        if report is None or not queue.executors or queue.copies >= _MOST_COPIES:
            return
        # The caller's buffers are its own again once it has its answer; the copy may wait longer.
        inputs = [Tensor(one.name, one.datatype, one.shape, bytes(one.data)) for one in request.inputs]
        copy = replace(request, inputs=inputs, version=version)
        with suppress(ShoalError):  # a shadow never costs its original anything
            self.take(entry, queue, copy, report.metadata, shadow=True)

    # --- questions

    def ready(self) -> bool:
        """Whether every model that should be loaded is."""
        return all(
            entry.main in self.takes(entry) or entry.key(entry.main) in self.replica_set.withheld
            for entry in self.directory
        )

    def model_ready(self, tenant: str, model: str, version: str | None) -> bool:
        entry = self.directory.find(tenant, model)
        if version is None:
            return bool(self.takes(entry))
        entry.check(version)
        return version in self.takes(entry)

    def metadata(self, tenant: str, model: str, version: str | None) -> ModelMetadata:
        entry = self.directory.find(tenant, model)
        if version is not None:
            entry.check(version)
        for one in [entry.main, *entry.versions] if version is None else [version]:
            report = self.replica_set.reports.get(entry.key(one))
            if report is not None:
                return replace(report.metadata, versions=tuple(entry.versions))
        raise NotReady("it was never loaded yet", where=f"model {model!r}", hint="ask again in a moment")

    def statistics(self, tenant: str, model: str | None, version: str | None) -> Sequence[Stats]:
        entries = [self.directory.find(tenant, model)] if model else [*self.directory.visible(tenant)]
        if version is not None:
            for entry in entries:
                entry.check(version)
        return [
            self.stats[entry.key(one)]
            for entry in entries
            for one in entry.versions
            if version is None or one == version
        ]

    def index(self, tenant: str, ready_only: bool) -> Sequence[VersionStatus]:
        found = [self.status(entry, version) for entry in self.directory.visible(tenant) for version in entry.versions]
        return [one for one in found if one.state is ModelState.READY or not ready_only]

    def status(self, entry: Entry, version: str) -> VersionStatus:
        key = entry.key(version)
        if self.dispatcher.queues[key].executors:
            said = summed_up(self.replica_set.conditions(entry.service_id, key))
            own = said.state
            return VersionStatus(
                entry.name, version, ModelState.READY, word=own.word, said=own.reason, well=own.is_well,
                figures=dict(said.figures),
            )  # fmt: skip
        coming = self.replica_set.coming(entry.service_id, key)
        state = ModelState.LOADING if coming else ModelState.UNAVAILABLE
        return VersionStatus(entry.name, version, state, self.replica_set.why_not(entry.service_id, key))

    async def load(self, tenant: str, model: str) -> None:
        """Returns when the model is ready; raises BadModel or UnknownModel. Like `unload` it goes on when its caller is
        gone: a model must not be left half loaded."""
        entry = self.directory.find(tenant, model)

        async def work() -> None:
            for version in entry.versions:
                await self.replica_set.load(entry.service_id, entry.key(version))
            if not self.takes(entry):
                raise self._not_ready(entry, entry.main)

        await asyncio.shield(self.replica_set.spawn(work()))

    async def unload(self, tenant: str, model: str) -> None:
        entry = self.directory.find(tenant, model)

        async def work() -> None:
            for version in entry.versions:
                await self.replica_set.unload(entry.service_id, entry.key(version))

        await asyncio.shield(self.replica_set.spawn(work()))

    # --- what the replica set tells; nothing may raise

    def changed(self, key: str) -> None:
        """The replicas that can execute the model, or are going to, have changed."""
        entry = self._entries.get(key)
        if entry is None:
            return
        queue = self.dispatcher.queues[key]
        able = self.replica_set.executors(entry.service_id, key)
        most = min((report.metadata.max_batch for _, report in able), default=queue.spec.max_batch)
        rows = min((report.rows for _, report in able), default=queue.spec.rows)
        entry.takers = None
        spec = self._queue_spec(entry, queue.version, max(1, most) if rows == 1 else 1, rows)
        draining = self.stepper.sequences.draining(key)
        self.dispatcher.change_queue(key, spec, [replica for replica, _ in able], draining)
        if queue.waiting and not able and not draining and not self.replica_set.seek(entry.service_id, key):
            self.dispatcher.give_up(key, self._not_ready(entry, queue.version))
        self._announce(key)

    def known(self, key: str, report: LoadReport) -> None:
        """A replica has it loaded, since just now or from before the gateway was started again."""
        # The first run of a batch size is slow, and so is one during which the machine did something else.
        self._profiles.prime(
            key,
            [(runs.batch, min(runs.seconds[1:])) for runs in report.runs if runs.seconds[1:]],
            self.dispatcher.clock(),
        )

    def loaded(self, key: str, report: LoadReport) -> None:
        """A replica loaded it just now."""
        entry = self._entries.get(key)
        if entry is not None:
            self.meter.overhead(entry.service.tenant, report.load_s + report.warmup_s)

    def state_lost(self, replica: Replica, key: str | None, why: str) -> None:
        """The replica has no state of sequences of the model any more; with None, of no model."""
        if key is None:
            self.stepper.sequences.lose_replica(replica, why)
        else:
            self.stepper.sequences.lose_queue(key, why, replica)

    def waiting(self, key: str) -> int:
        """How many requests for it wait to be executed."""
        queue = self.dispatcher.queues.get(key)
        return len(queue.waiting) if queue is not None else 0

    def _announce(self, key: str) -> None:
        """Wake those who wait for a first load, to look again."""
        news = self._news.pop(key, None)
        if news is not None:
            news.set()

    def takes(self, entry: Entry) -> frozenset[str]:
        """The versions that take requests: a replica can execute them, or loads them on the first request."""
        if entry.takers is None:
            queues, on_demand = self.dispatcher.queues, self.replica_set.on_demand
            keys = {version: entry.key(version) for version in entry.versions}
            entry.takers = frozenset(
                version for version, key in keys.items() if queues[key].executors or on_demand(entry.service_id, key)
            )
        return entry.takers

    # --- what the dispatcher tells; nothing may raise

    def spent(self, queue: DispatchQueue, executor: str, calls: Sequence[Call], device_s: float, ok: bool) -> None:
        """The calls were executed together by the replica of this name; `ok` if any of them was answered."""
        slot_s = device_s * queue.spec.slots
        if ok:
            self.meter.use(queue.spec.tenant, slot_s)
        else:
            self.meter.overhead(queue.spec.tenant, slot_s)
        if queue.service_id in self._buckets:
            sample_s = slot_s / sum(call.item.samples for call in calls)
            for call in calls:
                if not call.copy:  # a shadow's copies are on the house
                    took_s = sample_s * call.item.samples
                    self._settle(queue, call.charged_s, took_s if ok else min(took_s, call.charged_s))
        self.replica_set.used(executor, queue.spec.key, len(calls))

    def spared(self, call: Call) -> None:
        """The call came to an end without being executed."""
        if call.charged_s:
            self._settle(call.queue, call.charged_s, 0.0)


def _way_s(patience_s: float) -> float:
    return min(_WAY_S, _WAY_SHARE * patience_s)


def _given_up_s(request: InferRequest, patience_s: float) -> float:
    """A caller's own timeout is when it goes; an objective may be missed now and then, by as much again."""
    return patience_s if request.timeout_s is not None else LATE * patience_s
