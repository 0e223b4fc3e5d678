"""Free capacity while a decision is being made: the snapshot's nodes, less what this decision gave away or holds back.

Within one decision capacity only shrinks. This makes it fast: a node that was too small for a shape once never fits
it again. So each shape keeps a cursor into each bucket of nodes, and a shape that failed once is not tried again.
Nodes are named by their position in the snapshot.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

from shoal.admission.amounts import Amount, use_up
from shoal.admission.pools import keys_of
from shoal.admission.snapshot import CPU_POOL, BucketKey, Need, Snapshot
from shoal.admission.together import Fits, among
from shoal.admission.types import NO_SEATS, Seats, Shared, Spread
from shoal.core import Share

Plan = tuple[tuple[int, int], ...]
"""(node position, ranks on it) of a gang placed whole."""


@dataclass(slots=True)
class _Free:
    """What is free on a node that this decision has touched."""

    ids: dict[str, list[str]]
    cpu_milli: int
    memory_bytes: int
    seats: dict[str, dict[str, Seats]]


@dataclass(slots=True)
class Hold:
    """Capacity kept free on one node for a job that waits. `number` is the bit of its owner in the masks of `find`."""

    number: int
    amount: Amount


class Capacity:
    """Finds and takes capacity.

    A *mask* says which holds a job must respect, one bit for each owner of holds: a job that ends before a
    reservation comes due may use the capacity held for it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._states = snapshot.nodes.states
        self._layout = snapshot.nodes.layout
        self.levels = self._layout.levels
        self._pools = snapshot.pools
        self._touched: dict[int, _Free] = {}
        self._moved: dict[str, dict[int, BucketKey]] = {}
        self._extra: dict[str, dict[BucketKey, list[int]]] = {}
        self._keys: dict[str, list[BucketKey]] = {}
        self._cursors: dict[tuple[Need, int, int], dict[BucketKey, int]] = {}
        self._failed: set[tuple[Need, int, int]] = set()
        self._holds: dict[int, list[Hold]] = {}
        self._changed: list[int] = []
        self._fitted: dict[tuple[Need, int, int], tuple[dict[int, int], int]] = {}

    # --- looking

    def free_on(self, at: int, mask: int) -> Amount:
        """What is free on a node for a job with this mask."""
        free = self._touched.get(at)
        if free is not None:
            devices = {kind: len(ids) for kind, ids in free.ids.items()}
            amount = Amount(devices, free.cpu_milli, free.memory_bytes)
            seats: Shared = free.seats
        else:
            state = self._states[at]
            devices = {kind: len(ids) for kind, ids in state.free_devices.items()}
            amount = Amount(devices, state.free_cpu_milli, state.free_memory_bytes)
            seats = state.free_seats
        if seats:
            amount.shared = self._layout.shared[at]
            for of_kind in seats.values():
                amount.seats |= of_kind
        for hold in self._holds.get(at, ()):
            if mask >> hold.number & 1:
                amount.minus(hold.amount)
        return amount

    def find(self, need: Need, ranks: int, spread: Spread, mask: int) -> Plan | None:
        """Where a gang of equal ranks fits whole, None if nowhere.

        PACK takes the fullest node that holds the whole gang; if no node does, as few nodes as possible, the emptiest
        first, and the fullest that fits for what is left; all of one rack, or the like, if any holds it. SPREAD puts
        each rank on the node that is emptiest then. A need that says how many ranks each node gets is packed. Of the
        nodes where it may be, the best ones that hold it whole are taken.
        """
        if need.only is not None:
            for best in need.only.tiers:
                plan = self.find(replace(need, only=best), ranks, spread, mask)
                if plan is not None:
                    return plan
        asked = (need, ranks, mask)
        if asked in self._failed:
            return None
        plan = None
        if ranks == 1 or spread is Spread.PACK:
            at = self._best_node(need, ranks, spread, mask)
            plan = ((at, ranks),) if at is not None else None
        if plan is None and ranks > 1:
            packed = spread is Spread.PACK or need.per_node
            plan = self._pack(need, ranks, mask) if packed else self._spread(need, ranks, mask)
        if plan is None:
            self._failed.add(asked)
        return plan

    def refine(self, plan: Plan, need: Need, spread: Spread, mask: int, saved: Mapping[str, float]) -> Plan:
        """Where a gang that fits (by `plan`) saves most: `saved` is what nodes are worth to it beyond what its need
        says, in seconds by name."""
        ranks = sum(count for _, count in plan)
        position = self._layout.position
        worth = {position[name]: seconds for name, seconds in saved.items() if name in position}
        sites = need.only if need.only is not None else self._layout.everywhere
        found = (self.find(replace(need, only=best), ranks, spread, mask) for best in sites.worth(worth))
        return next((better for better in found if better is not None), plan)

    def fitting(self, need: Need, mask: int, at_most: int) -> Iterator[tuple[int, int]]:
        """(node, ranks that fit on it) for every node where at least one does, emptiest bucket first."""
        name = need.pool_name
        if name not in self._pools:
            return
        for key in reversed(self._pool_keys(name)):
            if key[0] < need.count:
                return
            for at in self._members(name, key):
                fits = self._ranks_on(at, need, mask, at_most)
                if fits:
                    yield at, fits

    def most(self, need: Need, mask: int, at_most: int) -> int:
        """How many ranks of one gang, up to `at_most`, `find` would find capacity for."""
        found = 0
        for _, fits in self.fitting(need, mask, at_most):
            found += fits
            if found >= at_most:
                return at_most
        return found

    def most_on_one_node(self, need: Need) -> int:
        """The greatest number of free devices of its pool on one node where it may be."""
        name = need.pool_name
        for key in reversed(self._pool_keys(name)):
            if any(need.may_be_on(at) for at in self._members(name, key)):
                return key[0]
        return 0

    # --- changing

    def take(self, at: int, need: Need, ranks: int, mask: int) -> tuple[tuple[str, ...], ...]:
        """Give `ranks` ranks their capacity on a node; returns the device ids of each rank."""
        self._changed.append(at)
        free = self._touched.get(at)
        if free is None:
            state = self._states[at]
            ids = {kind: list(ids) for kind, ids in state.free_devices.items()}
            seats = {kind: dict(of_kind) for kind, of_kind in state.free_seats.items()}
            free = self._touched[at] = _Free(ids, state.free_cpu_milli, state.free_memory_bytes, seats)
        room = self.free_on(at, mask) if free.seats else _NOTHING
        free.cpu_milli -= need.cpu_milli * ranks
        free.memory_bytes -= need.memory_bytes * ranks
        given: list[tuple[str, ...]] = []
        index_of = self._layout.index_of[at]
        for _ in range(ranks):
            devices: tuple[str, ...] = ()
            for kind, count in need.kinds:
                if kind in free.seats:
                    devices += self._pick_shared(at, free, need, kind, count, room)
                else:
                    devices += _pick(free.ids[kind], count, index_of)
            given.append(devices)
        self._move(at, free)
        # A job that may use held capacity ends before its owner comes, so it uses the hold up rather than adding to it.
        used: Amount | None = None
        for hold in self._holds.get(at, ()):
            if not mask >> hold.number & 1:
                if used is None:
                    used = Amount(shared=self._layout.shared[at])
                    used.add(need, ranks, (device for devices in given for device in devices))
                use_up(hold.amount, used)
        return tuple(given)

    def hold(self, number: int, at: int, amount: Amount) -> None:
        """Keep capacity free on a node from every later job whose mask has bit `number`."""
        self._changed.append(at)
        if amount:
            self._holds.setdefault(at, []).append(Hold(number, amount))

    # --- inside

    def _pool_keys(self, name: str) -> list[BucketKey]:
        keys = self._keys.get(name)
        if keys is None:
            pool = self._pools.get(name)
            keys = self._keys[name] = list(pool.keys) if pool else []
        return keys

    def _members(self, name: str, key: BucketKey) -> Iterator[int]:
        moved = self._moved.get(name, _NOWHERE)
        for at in self._pools[name].buckets.get(key, ()):
            if moved.get(at, key) == key:
                yield at
        for at in self._extra.get(name, _NO_EXTRA).get(key, ()):
            if moved[at] == key:
                yield at

    def _ranks_on(self, at: int, need: Need, mask: int, at_most: int) -> int:
        if need.only is not None and at not in need.only.at:
            return 0
        if at in self._holds or self._layout.shared[at]:
            return self.free_on(at, mask).ranks(need, at_most)
        free = self._touched.get(at)
        if free is not None:
            ids: Mapping[str, list[str] | tuple[str, ...]] = free.ids
            cpu_milli, memory_bytes = free.cpu_milli, free.memory_bytes
        else:
            state = self._states[at]
            ids, cpu_milli, memory_bytes = state.free_devices, state.free_cpu_milli, state.free_memory_bytes
        if need.count:
            at_most = min(at_most, len(ids[need.pool]) // need.count)
        for kind, count in need.others:
            at_most = min(at_most, len(ids.get(kind, ())) // count)
        if need.cpu_milli:
            at_most = min(at_most, cpu_milli // need.cpu_milli)
        if need.memory_bytes:
            at_most = min(at_most, memory_bytes // need.memory_bytes)
        return need.at_most(max(at_most, 0))

    def _best_node(self, need: Need, ranks: int, spread: Spread, mask: int) -> int | None:
        keys = self._pool_keys(need.pool_name)
        if need.pool == CPU_POOL:
            # Cores beside free accelerators are worth more: packed last, and spread by free cores alone.
            least = need.cpu_milli * ranks // 1000
            order = [key for key in keys if key[1] >= least]
            if spread is Spread.SPREAD:
                order.sort(key=lambda key: (-key[1], key[0]))
        else:
            order = keys[bisect_left(keys, (need.count * ranks, 0)) :]
            if spread is Spread.SPREAD:
                order.reverse()
        cursors = self._cursors.setdefault((need, ranks, mask), {})
        for key in order:
            at = self._advance(need, ranks, mask, key, cursors)
            if at is not None:
                return at
        return None

    def _advance(self, need: Need, ranks: int, mask: int, key: BucketKey, cursors: dict[BucketKey, int]) -> int | None:
        """The first node of a bucket that fits, from where the last search for this shape ended."""
        name = need.pool_name
        base = self._pools[name].buckets.get(key, ())
        extra = self._extra.get(name, _NO_EXTRA).get(key, ())
        moved = self._moved.get(name, _NOWHERE)
        cursor, base_len = cursors.get(key, 0), len(base)
        end = base_len + len(extra)
        found = None
        while cursor < end:
            at = base[cursor] if cursor < base_len else extra[cursor - base_len]
            if moved.get(at, key) == key and self._ranks_on(at, need, mask, ranks) >= ranks:
                found = at
                break
            cursor += 1
        cursors[key] = cursor
        return found

    def _pack(self, need: Need, ranks: int, mask: int) -> Plan | None:
        plan: list[tuple[int, int]] = []
        left = ranks
        near = self._close_by(need, ranks, mask) if self.levels else ()
        for at, fits in near or self.fitting(need, mask, ranks):
            plan.append((at, min(fits, left)))
            left -= plan[-1][1]
            if not left:
                break
        if left:
            return None
        at, last = plan.pop()
        used = {each for each, _ in plan}
        better = self._best_node(need, last, Spread.PACK, mask)
        if near:
            better = [each for each, fits in near if fits >= last and each not in used][-1]
        return (*plan, (at if better is None or better in used else better, last))

    def _close_by(self, need: Need, ranks: int, mask: int) -> Fits:
        """The nodes among which the gang is kept, the emptiest first. What fitted once is kept: it only shrinks."""
        asked, now = (need, ranks, mask), len(self._changed)
        fits, seen = self._fitted.get(asked) or (dict(self.fitting(need, mask, ranks)), now)
        fits.update((at, self._ranks_on(at, need, mask, ranks)) for at in self._changed[seen:] if at in fits)
        self._fitted[asked] = fits, now
        near = among(self.levels, [each for each in fits.items() if each[1]], ranks)
        return sorted(near, key=lambda each: -each[1])

    def _spread(self, need: Need, ranks: int, mask: int) -> Plan | None:
        heap: list[tuple[int, int, int, int]] = []  # (-capacity left, ranks given, node, ranks that fit)
        for at, fits in self.fitting(need, mask, ranks):
            free = self.free_on(at, mask)
            left = free.cpu_milli if not need.count else free.number_of(need)
            heap.append((-left, 0, at, fits))
        if sum(entry[3] for entry in heap) < ranks:
            return None
        heapify(heap)
        step = need.count or need.cpu_milli
        for _ in range(ranks):
            capacity, given, at, fits = heap[0]
            # A node that is full sinks below every other.
            heapreplace(heap, (capacity + step if given + 1 < fits else 1, given + 1, at, fits))
        return tuple(sorted((at, given) for _, given, at, _ in heap if given))

    def _move(self, at: int, free: _Free) -> None:
        for name, key in keys_of({kind: len(ids) for kind, ids in free.ids.items()}, free.seats, free.cpu_milli):
            self._enter(name, at, key)

    def _pick_shared(self, at: int, free: _Free, need: Need, kind: str, count: int, room: Amount) -> tuple[str, ...]:
        """Take `count` devices that can be shared, of those with room for a rank (`room`: what is open to the job)."""
        fits = room.open_to(need, kind)
        if need.share is Share.EXCLUSIVE:
            index_of = self._layout.index_of[at]
            chosen = _pick(sorted(fits, key=index_of.__getitem__), count, index_of)
        else:
            chosen = tuple(fits[:count])
        whole, left = self._layout.shared[at][kind], free.seats[kind]
        for device in chosen:
            left[device] = left[device].minus(need.of_device(whole[device]))
            # A gang's ranks have devices of their own, as they are counted.
            room.seats[device] = NO_SEATS
        free.ids[kind] = [each for each in free.ids[kind] if each not in chosen]
        return chosen

    def _enter(self, name: str, at: int, key: BucketKey) -> None:
        moved = self._moved.setdefault(name, {})
        old = moved.get(at)
        if old == key:
            return
        if at not in moved and at in _slice_of(self._pools[name].buckets.get(key, ()), at):
            return
        moved[at] = key
        buckets = self._extra.setdefault(name, {})
        buckets.setdefault(key, []).append(at)
        keys = self._pool_keys(name)
        if old is not None and buckets[old] == [at] and old not in self._pools[name].buckets:
            del keys[bisect_left(keys, old)]  # it was alone there: searches need not look
        where = bisect_left(keys, key)
        if where == len(keys) or keys[where] != key:
            insort(keys, key)


_NOTHING = Amount()
_NOWHERE: Mapping[int, BucketKey] = {}
_NO_EXTRA: Mapping[BucketKey, list[int]] = {}


def _slice_of(members: tuple[int, ...], at: int) -> tuple[int, ...]:
    """The member equal to `at`, if there is one (members are sorted)."""
    where = bisect_left(members, at)
    return members[where : where + 1]


def _pick(ids: list[str], count: int, index_of: Mapping[str, int]) -> tuple[str, ...]:
    """Take `count` devices out of `ids` (sorted by index): the shortest run of neighbours that is long enough, the
    lowest if several are; without one, the lowest indices. The places of a pool, which have no index, have none."""
    if count == len(ids) or not index_of:
        taken = tuple(ids[-count:])
        del ids[-count:]
        return taken
    best_start, best_length, start = -1, len(ids) + 1, 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or index_of[ids[end]] != index_of[ids[end - 1]] + 1:
            if count <= end - start < best_length:
                best_start, best_length = start, end - start
            start = end
    best_start = max(best_start, 0)
    taken = tuple(ids[best_start : best_start + count])
    del ids[best_start : best_start + count]
    return taken
