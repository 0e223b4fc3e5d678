"""Scheduling by rounds in the live control plane: `shoal.schedule`'s policies over the jobs that really wait and run.

Without a configured policy nothing of this is imported, and admission alone decides. With one, `Scheduler` stands in
for admission's `decide`. It senses what jobs report (`sampler`, into the throughput oracle), makes a `Problem` of the
admission snapshot (`problem`), takes one step of the loop that the simulator takes too (`shoal.schedule.loop`), and
carries the round out with admission's own node packing (`placing`): starts, preemptions by checkpoint, and waits that
name the price which kept a job waiting. Guaranteed jobs, services and jobs without accelerators stay admission's. What
it remembers over a restart is a small file (`state_file`).
"""

from shoal.schedule.live.asking import what_if
from shoal.schedule.live.facts import Facts, facts_of
from shoal.schedule.live.scheduler import Scheduler, live_snapshot
from shoal.schedule.presets import ScheduleSettings

__all__ = ["Facts", "ScheduleSettings", "Scheduler", "facts_of", "live_snapshot", "what_if"]
