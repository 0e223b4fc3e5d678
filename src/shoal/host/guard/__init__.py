"""The guard: every tick it senses the host, asks a policy, and makes limits on best-effort groups so.

`loop` is one tick with its effects passed in, so that the simulator and the tests drive the very same loop; `journal`
keeps every tick and `replay` decides them again; `history` says what a guard did, and whether one runs; `daemon` puts
the loop together with this host's own sensors and actuators. Whatever fails is written down and worked around: a guard
that crashes protects nothing.
"""
