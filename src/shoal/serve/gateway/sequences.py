"""Open sequences, where their state is, and how they end.

A sequence belongs to one caller, model, version and replica. Its steps run one after the other, in the order in which
they came. It ends by its last step, by idleness, or with its replica; what ended without its caller is remembered for a
while, so that the next request learns of it. Nothing here does I/O but telling replicas to drop a state.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from shoal.inference.errors import BadRequest
from shoal.inference.types import SequenceStep
from shoal.serve.errors import SequenceLost, TooManySequences
from shoal.serve.gateway.replicas.replica_handle import Replica

SequenceKey = tuple[str, str, str, int | str]
"""The caller's tenant ("" for the operator), the model's tenant, the model, and the id that the caller gave."""

_MOST_REMEMBERED = 10_000
"""Lost sequences that a later request can be told of: the callers of many replicas that died together."""
_LEAST_RETRY_S = 1.0


@dataclass(slots=True, eq=False)
class LiveSequence:
    """An open sequence. `steps` were answered; `requests` have the turn or wait for it. `queue` is the queue's key and
    `replica` where the state is, once the first step was placed. `ending` once its last step has come, `over` once it
    takes no more; `lost` says why where its caller did not end it. `shadow` is its copy in a version that only
    shadows."""

    key: SequenceKey
    number: int
    idle_s: float
    last_at: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    steps: int = 0
    requests: int = 0
    version: str = ""
    queue: str = ""
    model: tuple[str, str] = ("", "")
    replica: Replica | None = None
    size: int = 0
    ending: bool = False
    over: bool = False
    lost: str = ""
    shadow: LiveSequence | None = None

    @property
    def place(self) -> str:
        return f"model {self.key[2]!r}"


class Sequences:
    """`counts` has by queue how many were `started`, `ended`, `failed` (at their first step), `lost` and `idle`.
    `freed` is called with the queue of a sequence that a replica which is about to end has no more."""

    def __init__(self, freed: Callable[[str], None]) -> None:
        self._freed = freed
        self._held: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[str] = Counter()
        self._live: dict[SequenceKey, LiveSequence] = {}
        self._placed: dict[str, dict[int, LiveSequence]] = {}
        self._lost: OrderedDict[SequenceKey, tuple[str, int]] = OrderedDict()
        self._number = 0
        self.counts: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def enter(self, key: SequenceKey, step: SequenceStep, idle_s: float, now: float) -> LiveSequence:
        """The sequence that a request belongs to: a new one for its first step, also while the last step of the one
        before it is still on its way. Raises BadRequest or SequenceLost."""
        live = self._live.get(key)
        if step.start:
            if live is not None and not live.ending:
                raise BadRequest(
                    f"sequence {step.id!r} of this model has begun already", where=f"model {key[2]!r}",
                    hint="end it with sequence_end, or take another id",
                )  # fmt: skip
            self._lost.pop(key, None)
            live = self._live[key] = self._new(key, idle_s, now)
        elif live is None:
            raise self.absent(key)
        live.ending = live.ending or step.end
        return live

    def place(self, live: LiveSequence, queue: str, model: tuple[str, str], replica: Replica, size: int) -> None:
        """Its state, of this number of bytes, will be there."""
        live.queue, live.model, live.version, live.replica = queue, model, model[1], replica
        live.size = size
        self._placed.setdefault(queue, {})[live.number] = live
        self._held[queue, replica.name] += 1
        self._bytes[replica.name] += size
        replica.held_sequences += 1
        self._count(queue, "started")

    def shadow(
        self, live: LiveSequence, queue: str, model: tuple[str, str], replica: Replica, size: int, now: float
    ) -> None:
        """A copy of it, whose answers nobody sees."""
        copy = live.shadow = self._new(live.key, live.idle_s, now)
        self.place(copy, queue, model, replica, size)

    def choose(
        self, queue: str, replicas: Sequence[Replica], most: int, size: int, free_bytes: Callable[[str], float],
        now: float,
    ) -> Replica:  # fmt: skip
        """The replica with the fewest sequences of the model; each keeps at most `most`, of `size` bytes each, and all
        that it keeps must find room beside its models. Raises TooManySequences."""
        fewer = [one for one in replicas if self._held[queue, one.name] < most]
        free = [one for one in fewer if self._bytes[one.name] + size <= free_bytes(one.name)]
        if not free:
            why = f"a replica keeps {most}" if not fewer else "no replica has memory for the state of another one"
            left = min((one.last_at + one.idle_s - now for one in self.of(queue)), default=0.0)
            raise TooManySequences(
                f"too many sequences: {why}", where=queue, retry_after_s=max(_LEAST_RETRY_S, left),
                hint="end sequences that are done, or scale the service",
            )  # fmt: skip
        return min(free, key=lambda one: self._held[queue, one.name])

    def of(self, queue: str) -> Collection[LiveSequence]:
        """Those whose state is in a replica, copies for shadows included."""
        return self._placed.get(queue, {}).values()

    def draining(self, queue: str) -> list[Replica]:
        """Replicas that are about to end and still have sequences of the model."""
        found = {one.replica.name: one.replica for one in self.of(queue) if one.replica is not None}
        return [replica for replica in found.values() if replica.leaving and replica.lost is None]

    def answered(self, live: LiveSequence, end: bool, now: float) -> None:
        live.steps += 1
        live.last_at = now
        if end:
            self._end(live, "ended")

    def failed(self, live: LiveSequence, step: SequenceStep) -> bool:
        """A step failed. Whether the sequence goes on: not if that was the first one, or its caller began anew."""
        if live.steps and self._live.get(live.key) is live:
            live.ending = live.ending and not step.end
            return True
        self._end(live, "failed")  # it never began
        return False

    def lose(self, live: LiveSequence, why: str, kind: str = "lost") -> None:
        """Its state is gone, or not worth keeping: its next request is told so."""
        if live.over:
            return
        live.lost = why
        if self._live.get(live.key) is live:
            self._lost[live.key] = (why, live.steps)
            while len(self._lost) > _MOST_REMEMBERED:
                self._lost.popitem(last=False)
        self._end(live, kind)

    def lose_replica(self, replica: Replica, why: str) -> None:
        for live in [*self._all()]:
            if live.replica is replica:
                self.lose(live, why)

    def lose_queue(self, queue: str, why: str, replica: Replica | None = None) -> None:
        """All of a model, or those of it in one replica."""
        for live in [*self.of(queue)]:
            if replica in (None, live.replica):
                self.lose(live, why)

    def sweep(self, now: float) -> None:
        """Drop those that were idle for too long."""
        for live in [*self._all(), *self._live.values()]:
            if not live.over and not live.requests and now - live.last_at >= live.idle_s:
                self.lose(live, f"it was idle for {live.idle_s:g} s", "idle")

    def _all(self) -> Iterator[LiveSequence]:
        for placed in self._placed.values():
            yield from placed.values()

    def _new(self, key: SequenceKey, idle_s: float, now: float) -> LiveSequence:
        self._number += 1
        return LiveSequence(key, self._number, idle_s, now)

    def _end(self, live: LiveSequence, kind: str) -> None:
        if live.over:
            return
        live.over = True
        if self._live.get(live.key) is live:
            del self._live[live.key]
        if live.replica is not None:
            placed = self._placed[live.queue]
            del placed[live.number]
            if not placed:
                del self._placed[live.queue]
            self._held[live.queue, live.replica.name] -= 1
            self._bytes[live.replica.name] -= live.size
            self._count(live.queue, kind)
            live.replica.end_sequence(live.model, live.number)
            if live.replica.leaving:
                self._freed(live.queue)
        if live.shadow is not None and kind != "ended":  # else it ends by its copy of the last step
            self._end(live.shadow, kind)

    def _count(self, queue: str, kind: str) -> None:
        self.counts.setdefault(queue, Counter())[kind] += 1

    def absent(self, key: SequenceKey) -> BadRequest | SequenceLost:
        """The error of a request for a sequence that is over, or never was."""
        where, name = f"model {key[2]!r}", repr(key[3])[:100]
        lost = self._lost.get(key)
        if lost is None:
            return BadRequest(f"there is no sequence {name} of this model", where=where, hint="send sequence_start")
        why, steps = lost
        return SequenceLost(
            f"sequence {name} is lost: {why}; {steps} of its steps were answered", where=where, answered=steps,
            hint="begin it again with sequence_start",
        )  # fmt: skip
