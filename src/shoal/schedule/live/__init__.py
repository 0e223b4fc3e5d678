"""Scheduling by rounds in the live control plane: `shoal.schedule`'s policies over the jobs that really wait and run.

With no configured policy admission alone decides. With one, `Scheduler` stands in for admission's `decide`. It senses
what jobs report (`sampler`, into the throughput oracle), makes a `Problem` of the admission snapshot (`problem`), takes
one step of the loop that the simulator takes too (`shoal.schedule.loop`), and gives admission's `decide` the order of
the round (`placing`). Waits name the price that kept a job waiting, and jobs leave their places by checkpoint.
Guaranteed jobs, services and jobs without accelerators stay admission's. What it remembers over a restart is a small
file (`state_file`).

The server knows this package as an extension (`extension`). It imports the numerical libraries only when a policy is
set; for that reason nothing is imported here.
"""
