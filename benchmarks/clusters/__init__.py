"""Throw-away clusters of real daemons on this machine, for benchmarks, tests and `shoal demo --engine slurm`."""
