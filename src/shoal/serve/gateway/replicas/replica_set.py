"""The replicas that joined, and which models each of them has loaded.

A replica shows a token that says which deployment it belongs to. It is told to load the models of that deployment one
after the other, and serves each of them as soon as it is warm. Where a service's models are more than its memory
limit holds, the rest is loaded when it is asked for, in the place of what is cheapest to bring back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core import Reason
from shoal.inference.opening import LoadReport
from shoal.inference.runtime import REPORTS, Condition
from shoal.inference.types import ModelSpec
from shoal.serve.contract import Deployment
from shoal.serve.errors import ReplicaLost
from shoal.serve.gateway.directory import Directory, queue_key
from shoal.serve.gateway.kept import KeptStates
from shoal.serve.gateway.replicas.replica_handle import Replica, ReplicaEvents
from shoal.serve.residency import ModelCache, make_room

if TYPE_CHECKING:
    from shoal.serve.gateway.core import Gateway

log = logging.getLogger("shoal.serve")

BACK_WITHIN_S = 5.0
"""How long a service's requests wait for a replica that died: the control plane starts it again."""
DEATHS = 3
"""A model is not loaded any more when this number of replicas died in a row while they loaded it: the others may live
without it."""
_LOOK_S = 0.005


@dataclass(slots=True, eq=False)
class Member:
    """A replica of a deployment. Models go by their queue's key.

    `specs` are the deployment's models. Of these, `ahead` are still to be loaded because they were deployed, and
    `wanted` because clients ask for them; `problems` says why one cannot be. `cache` is what takes up its memory.
    `brought_up` once nothing was ahead of it any more. `conditions` are what its runtimes said last.
    """

    replica: Replica
    deployment: Deployment
    specs: dict[str, ModelSpec]
    ahead: dict[str, None]
    wanted: dict[str, None] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    cache: ModelCache = field(default_factory=ModelCache)
    conditions: dict[str, Condition] = field(default_factory=dict)
    loading: str | None = None
    brought_up: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None

    @property
    def budget(self) -> int:
        """Bytes; 0 for no limit."""
        return self.deployment.spec.memory_bytes

    @property
    def ready(self) -> bool:
        return self.brought_up and not self.problems and not self.replica.leaving

    @property
    def reason(self) -> str:
        if self.ready:
            return ""
        if self.replica.leaving:
            return "it was asked to end"
        if self.problems:
            return next(iter(self.problems.values()))
        return f"loading {self.specs[self.loading].name}" if self.loading is not None else "it has just joined"

    def report(self, key: str) -> LoadReport | None:
        """What loading the model brought; None if it is not loaded, or nothing can be executed here any more."""
        spec = self.specs.get(key)
        if spec is None or self.replica.leaving or self.replica.lost is not None:
            return None
        return self.replica.models.get((spec.name, spec.version))

    def may_load(self, key: str) -> bool:
        return key in self.specs and key not in self.problems and not self.replica.leaving

    def is_to_load(self, key: str) -> bool:
        return (key in self.ahead or key in self.wanted or key == self.loading) and self.may_load(key)


class ReplicaSet(ReplicaEvents):
    """`reports` has the last one of each model that was ever loaded. `gateway` is told what changes."""

    def __init__(self, directory: Directory, gateway: Gateway, kept: KeptStates) -> None:
        self._directory = directory
        self._kept = kept
        self._gateway = gateway
        self.members: dict[str, Member] = {}
        self.reports: dict[str, LoadReport] = {}
        self.withheld: set[str] = set()
        """The keys of those that were unloaded on request: no replica loads them until asked to."""
        self._deaths: dict[tuple[str, str], list[str]] = {}
        """By the digest of the replicas' token and the model's key: a new generation is tried anew."""
        self._troubles: dict[str, str] = {}
        """By service: what was the matter with its last replica, if it hung or could not load a model."""
        self._expected: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # --- what the registry tells

    def joined(self, replica: Replica) -> None:
        deployment = self._directory.deployments.get(replica.token_digest)
        if deployment is None or self._closed:
            replica.stop()
            return
        replica.expect(deployment.spec.slo_p99_s, deployment.spec.load_timeout_s)
        specs = {queue_key(deployment.spec.tenant, one.name, one.version): one for one in deployment.spec.models}
        member = self.members[replica.name] = Member(replica, deployment, specs, dict.fromkeys(specs))
        expected = self._expected.pop(deployment.id, None)
        if expected is not None:
            expected.cancel()
        for key in specs:
            report = member.report(key)
            if report is not None:  # from before the gateway was restarted
                del member.ahead[key]
                self._note(member, key, report)
                self._gateway.changed(key)
            elif len(deaths := self._deaths.get((replica.token_digest, key), [])) >= DEATHS:
                del member.ahead[key]
                member.problems[key] = deaths[-1]
                self._gateway.changed(key)
        self._check_up(member)
        self._attend(member)

    def ready(self, replica: Replica, model: tuple[str, str]) -> None:
        member = self.members.get(replica.name)
        if member is None:
            return
        key = queue_key(member.deployment.spec.tenant, *model)
        report = member.replica.models[model]
        self._note(member, key, report)
        self._gateway.loaded(key, report)
        self._gateway.changed(key)

    def condition(self, replica: Replica, model: tuple[str, str], condition: Condition) -> None:
        member = self.members.get(replica.name)
        if member is None:
            return
        key = queue_key(member.deployment.spec.tenant, *model)
        if key not in member.specs:
            return
        member.conditions[key] = condition
        if condition.kept is not None:
            lasting = condition.state.lasting
            self._kept.put(replica.token_digest, replica.name, key, condition.kept, lasting=lasting)

    def leaving(self, replica: Replica) -> None:
        member = self.members.get(replica.name)
        if member is not None:
            self._all_changed(member)

    def lost(self, replica: Replica, reason: Reason) -> None:
        log.info("replica %s is gone: %s", replica.name, reason.text)
        member = self.members.get(replica.name)
        if member is None or member.replica is not replica:
            return
        del self.members[replica.name]
        self._gateway.state_lost(replica, None, f"the replica that kept it is gone: {reason.text}")
        if member.loading is not None:
            why = f"replica {replica.name} died while it loaded this: {reason.text}"
            self._deaths.setdefault((replica.token_digest, member.loading), []).append(why)
        elif reason.code == "stuck":
            self._troubles[member.deployment.id] = f"replica {replica.name} was killed: {reason.text}"
        elif member.problems:
            self._troubles[member.deployment.id] = next(iter(member.problems.values()))
        service_id = member.deployment.id
        if not replica.leaving and not self._closed and not any(self.of(service_id)):
            self._expect(service_id, [*member.specs])
        self._all_changed(member)

    # --- what the gateway asks

    def ask_conditions(self) -> None:
        """Of all loaded models whose runtimes have something to say."""
        for member in self.members.values():
            for model, report in member.replica.models.items():
                if not REPORTS.isdisjoint(report.abilities):
                    member.replica.ask_condition(model)

    def follow(self, directory: Directory) -> None:
        """Replicas whose deployment is not in the directory any more may end, once they answered what they were asked.
        Calls no event: the caller asks anew which replica can execute what."""
        self._directory = directory
        self._kept.follow(directory.deployments)
        self._deaths = {at: why for at, why in self._deaths.items() if at[0] in directory.deployments}
        self._troubles = {at: why for at, why in self._troubles.items() if at in directory.services}
        for member in self.members.values():
            deployment = directory.deployments.get(member.replica.token_digest)
            if deployment is not None:
                member.deployment = deployment
                member.replica.expect(deployment.spec.slo_p99_s, deployment.spec.load_timeout_s)
            elif not member.replica.leaving:
                member.replica.stop()

    def expect(self, service_ids: Collection[str]) -> None:
        """These services had replicas before the gateway was started again: requests wait for them, for a while."""
        for deployment in self._directory.deployments.values():
            if deployment.id in service_ids and deployment.id not in self._expected:
                tenant, models = deployment.spec.tenant, deployment.spec.models
                self._expect(deployment.id, [queue_key(tenant, one.name, one.version) for one in models])

    def forget(self, key: str) -> None:
        """The model is no longer deployed."""
        self.reports.pop(key, None)
        self.withheld.discard(key)

    def of(self, service_id: str) -> Iterator[Member]:
        return (member for member in self.members.values() if member.deployment.id == service_id)

    def executors(self, service_id: str, key: str) -> list[tuple[Replica, LoadReport]]:
        """The replicas that have the model loaded, those of the newest generation first; older ones only if they take
        and give the same tensors."""
        if key in self.withheld:
            return []
        members = sorted(self.of(service_id), key=lambda member: -member.deployment.generation)
        found = [(member.replica, report) for member in members if (report := member.report(key)) is not None]
        return [one for one in found if _tensors(one[1]) == _tensors(found[0][1])]

    def free_bytes(self, name: str) -> float:
        """What the replica's models leave of its memory; infinite where that is not limited."""
        member = self.members.get(name)
        return member.budget - member.cache.bytes if member is not None and member.budget else inf

    def conditions(self, service_id: str, key: str) -> dict[str, Condition]:
        """What its runtimes said last, by replica, where the model is loaded now."""
        return {
            member.replica.name: member.conditions[key]
            for member in self.of(service_id)
            if key in member.conditions and member.report(key) is not None
        }

    def on_demand(self, service_id: str, key: str) -> bool:
        """Whether the model was left out for want of memory, and is loaded on the first request for it."""
        return key not in self.withheld and any(
            member.budget and member.brought_up and member.may_load(key) for member in self.of(service_id)
        )

    def coming(self, service_id: str, key: str) -> bool:
        """Whether a replica is about to load the model, or is expected to come back."""
        return key not in self.withheld and (
            service_id in self._expected or any(member.is_to_load(key) for member in self.of(service_id))
        )

    def seek(self, service_id: str, key: str) -> bool:
        """Have a replica load the model that none has loaded. False if none will: see `why_not`."""
        if key in self.withheld or self._closed:
            return False
        able = [member for member in self.of(service_id) if member.may_load(key)]
        if not able:
            return service_id in self._expected
        if not any(key in member.wanted or key == member.loading for member in able):
            member = min(able, key=lambda one: one.replica.in_flight)
            member.wanted[key] = None
            self._attend(member)
        return True

    def why_not(self, service_id: str, key: str) -> str:
        """Why no replica can execute the model now."""
        if self._closed:
            return "the gateway is being stopped"
        if key in self.withheld:
            return "it was unloaded"
        members = list(self.of(service_id))
        problems = [member.problems[key] for member in members if key in member.problems]
        if problems:
            return problems[0]
        deaths = [why[-1] for (_, at), why in self._deaths.items() if at == key]
        if deaths:
            return deaths[0]
        if not members:
            return self._troubles.get(service_id, "no replica of its service has joined")
        if self.on_demand(service_id, key) and not self.coming(service_id, key):
            return "it is loaded when it is asked for"
        return "its replicas are still loading"

    def used(self, name: str, key: str, times: int) -> None:
        """Count the requests that the replica of this name executed: its share of memory follows them."""
        member = self.members.get(name)
        if member is not None and member.budget:
            member.cache.use(key, times)

    async def load(self, service_id: str, key: str) -> None:
        """Load the model, anew where it is loaded, in all of the service's replicas that have it deployed. Raises
        BadModel."""
        self.withheld.discard(key)
        members = [member for member in self.of(service_id) if key in member.specs and not member.replica.leaving]
        for error in await asyncio.gather(*(self._reload(member, key) for member in members), return_exceptions=True):
            if error is not None and not isinstance(error, ReplicaLost):
                raise error

    async def unload(self, service_id: str, key: str) -> None:
        """No replica executes or loads the model from now on."""
        self.withheld.add(key)
        self._gateway.changed(key)
        await asyncio.gather(*(self._withhold(member, key) for member in [*self.of(service_id)]))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that goes on until it is done, or this is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        self._closed = True
        for timer in self._expected.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside

    def _note(self, member: Member, key: str, report: LoadReport) -> None:
        self.reports[key] = report
        self._troubles.pop(member.deployment.id, None)
        self._gateway.known(key, report)
        self._deaths.pop((member.replica.token_digest, key), None)
        member.problems.pop(key, None)
        if member.budget:
            member.cache.put(key, report.resident_bytes, report.load_s + report.warmup_s)

    def _all_changed(self, member: Member) -> None:
        for key in member.specs:
            self._gateway.changed(key)

    def _expect(self, service_id: str, keys: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        self._expected[service_id] = loop.call_later(BACK_WITHIN_S, self._not_back, service_id, keys)

    def _not_back(self, service_id: str, keys: Sequence[str]) -> None:
        del self._expected[service_id]
        for key in keys:
            self._gateway.changed(key)

    def _check_up(self, member: Member) -> None:
        if not member.ahead and not member.brought_up:
            member.brought_up = True
            log.info("replica %s is up%s", member.replica.name, f": {member.reason}" if member.reason else "")
            self._all_changed(member)  # requests that wait for a model that was left out have it loaded now

    def _attend(self, member: Member) -> None:
        """Start a task that loads what the member is to load, unless one runs."""
        if member.task is None or member.task.done():
            member.task = self.spawn(self._load_all(member))

    async def _load_all(self, member: Member) -> None:
        """Until nothing is wanted or ahead: in turns, so that neither is put off for ever."""
        try:
            while member.wanted or member.ahead:
                for pending in (member.wanted, member.ahead):
                    if pending:
                        await self._take_up(member, next(iter(pending)))
        except ReplicaLost:
            return  # which `lost` is told of

    async def _take_up(self, member: Member, key: str) -> None:
        try:
            async with member.lock:
                if member.report(key) is None and (key in member.wanted or self._fits(member, key)):
                    await self._load(member, key)
        except ReplicaLost:
            raise
        except Exception as error:
            log.warning("replica %s cannot load %s: %s", member.replica.name, key, error)
        finally:
            member.ahead.pop(key, None)
            member.wanted.pop(key, None)
        self._gateway.changed(key)
        self._check_up(member)
        if member.budget:
            await self._let_it_serve(member, key)

    async def _load(self, member: Member, key: str) -> None:
        """With the member's lock held. Raises ReplicaLost, or what keeps the model from being loaded."""
        if key in self.withheld:
            return
        spec = member.specs[key]
        member.loading = key
        try:
            await self._evict_for(member, key, self._expected_bytes(key, spec))
            if (spec.name, spec.version) in member.replica.models:
                self._gateway.state_lost(member.replica, key, "its model was loaded anew")
            kept = self._kept.get(member.replica.token_digest, member.replica.name, key)
            report = await member.replica.load(spec, kept)
            await self._evict_for(member, key, report.resident_bytes)  # it may be larger than expected
        except ReplicaLost:
            raise
        except Exception as error:
            if (spec.name, spec.version) not in member.replica.models:
                member.problems[key] = str(error)
            raise
        finally:
            member.loading = None

    async def _let_it_serve(self, member: Member, key: str) -> None:
        """Keep a loaded model while requests wait for it. If other models are wanted too, keep it only for as long as
        loading it took: two models that do not fit together take turns, and execute half of the time."""
        report = member.report(key)
        if report is None:
            return
        for _ in range(int((report.load_s + report.warmup_s) / _LOOK_S)):
            if not (member.wanted and self._gateway.waiting(key)):
                return
            await asyncio.sleep(_LOOK_S)

    def _fits(self, member: Member, key: str) -> bool:
        wanted_bytes = self._expected_bytes(key, member.specs[key])
        return not member.budget or not any(member.cache) or member.cache.bytes + wanted_bytes <= member.budget

    def _expected_bytes(self, key: str, spec: ModelSpec) -> int:
        """As many as it took the last time; at first its file's size, and as much again to work with."""
        known = self.reports.get(key)
        if known is not None:
            return known.resident_bytes
        try:
            return 2 * Path(spec.source).stat().st_size
        except OSError:
            return 0

    async def _evict_for(self, member: Member, key: str, size: int) -> None:
        if not member.budget:
            return
        others = [model for model in member.cache if model.key != key]
        waited_for = {model.key for model in others if self._gateway.waiting(model.key)}
        for victim in make_room(others, size, member.budget, waited_for):
            log.info("replica %s: %s makes room for %s", member.replica.name, victim, key)
            member.cache.evict(victim)
            await self._unload(member, victim)

    async def _reload(self, member: Member, key: str) -> None:
        async with member.lock:
            try:
                await self._load(member, key)
            finally:
                self._gateway.changed(key)

    async def _withhold(self, member: Member, key: str) -> None:
        async with member.lock:  # so that what is being loaded now is unloaded as well
            member.cache.take(key)
            try:
                await self._unload(member, key)
            except ReplicaLost:
                return

    async def _unload(self, member: Member, key: str) -> None:
        spec = member.specs.get(key)
        if spec is not None and (spec.name, spec.version) in member.replica.models:
            self._gateway.state_lost(member.replica, key, "its model was unloaded")
            done = member.replica.unload(spec.name, spec.version)
            self._gateway.changed(key)
            await done


def _tensors(report: LoadReport) -> object:
    return report.metadata.inputs, report.metadata.outputs
