"""Host isolation: guaranteed workloads keep their speed while best-effort ones use what is left of memory bandwidth,
caches and cores (after Kelp, HPCA'19).

Sensors say how fast guaranteed work runs and how contended memory is, a pure policy turns such a `Snapshot` into a
`Plan` of limits on best-effort groups, and actuators make it so, each with a write-ahead log that outlives the daemon.
What a machine lacks is reported by name, and the next best sensor or actuator takes its place.
"""
