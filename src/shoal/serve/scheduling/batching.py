"""Dynamic batching that waits only while waiting pays.

A batch of n samples takes a + b*n. Putting one more request into it saves the device `a`; waiting for that request
delays all that are here. Where executions keep the executors busy, batches form by themselves while requests queue,
and there is nothing to wait for. So waiting is a matter of the moments when a slot is free, and there it pays for

- the next request: had the batch left without it, it would find the executor taken for what is left of a + b*n;
- all others that wait: each of them starts `a` earlier.

One waits at most as long as `a`, counted from the oldest request's arrival: then waiting in vain costs never more than
the start it might have saved (the rule of renting skis). Models whose batches bring nothing never wait.
"""

from __future__ import annotations

from math import inf

from shoal.serve.scheduling.profile import ExecutionProfile

SHORTEST_WAIT_S = 0.001
"""Timers of event loops (libuv's, thus uvloop's) count in milliseconds; below that one would sleep too long."""


def company_wait_s(
    profile: ExecutionProfile,
    samples: int,
    *,
    max_batch: int,
    waited_s: float,
    gap_s: float,
    spare_s: float,
    others: int,
    alone: bool,
) -> float:
    """For how long to hold back a batch of `samples` in the hope of one more request; 0 means: start it now.

    `waited_s` is the oldest request's age, `gap_s` the mean time between arrivals, `spare_s` how long the most urgent
    request can still wait, `others` how many requests of other queues could use the slot, and `alone` whether the
    next request would find no other free executor.
    """
    setup_s = profile.setup_s
    longest = min(setup_s - waited_s, spare_s, (max_batch - samples) * gap_s)
    if longest < SHORTEST_WAIT_S or gap_s > spare_s or not profile.pays(max_batch):
        return 0.0
    saved = others * setup_s
    if alone:
        saved += max(0.0, profile.expected_s(samples) - gap_s)
    delayed = gap_s * samples
    return longest if saved > delayed else 0.0


def batch_room(profile: ExecutionProfile, samples: int, *, head: int, max_batch: int, longest_s: float = inf) -> int:
    """How many of `samples` waiting ones to start together, the first request being `head` samples large: as many as
    surely take no longer than `longest_s`; 0 if not even that one does. One request at a time where batches do not pay,
    but for a try now and then.
    """
    most = min(samples, max_batch) if profile.worth_trying(max_batch) else head
    if longest_s == inf:
        return max(head, most)
    room = profile.fitting(max(head, most), longest_s)
    return room if room >= head else 0
