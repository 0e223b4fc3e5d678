"""Scheduling by rounds in the live control plane: `shoal.schedule`'s policies over the jobs that really wait and run.

Without a configured policy nothing of this is imported, and admission alone decides. With one, `Scheduler` stands in
for admission's `decide`. It senses what jobs report (`meter`, into the throughput oracle), makes a `Problem` of the
snapshot (`scene`), asks the policy (`asking`), steps the round mechanism (`plan`), and carries the round out with
admission's own node packing (`placing`): starts, preemptions by checkpoint, and waits that name the price which kept a
job waiting. Guaranteed jobs, services and jobs without accelerators stay admission's. Its memory is a small file
(`memory`).
"""

from shoal.control.scheduling.asking import what_if
from shoal.control.scheduling.facts import Facts, facts_of
from shoal.control.scheduling.scheduler import Scheduler, live_snapshot

__all__ = ["Facts", "Scheduler", "facts_of", "live_snapshot", "what_if"]
