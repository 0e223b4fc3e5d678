"""Workloads for the simulator: readers of others' traces and tables, generators, and snapshots of the live state.

A `Workload` is the jobs in columns, `Throughputs` how fast they are. Whatever is wrong in a file is an `Invalid` that
names the file and the line.
"""

from shoal.schedule.choices import Durations
from shoal.schedule.workloads.example import EXAMPLE, example_throughputs
from shoal.schedule.workloads.gavel import gavel_lines, read_gavel
from shoal.schedule.workloads.generate import gavel_jobs, philly_jobs
from shoal.schedule.workloads.heavy_tailed import heavy_tailed_jobs
from shoal.schedule.workloads.philly import read_philly
from shoal.schedule.workloads.prices import read_prices
from shoal.schedule.workloads.snapshot import Snapshot, is_snapshot, read_snapshot, snapshot_lines
from shoal.schedule.workloads.throughputs import read_throughputs
from shoal.schedule.workloads.types import PriceChange, Throughputs, Workload

__all__ = [
    "EXAMPLE", "Durations", "PriceChange", "Snapshot", "Throughputs", "Workload", "example_throughputs", "gavel_jobs",
    "gavel_lines", "heavy_tailed_jobs", "is_snapshot", "philly_jobs", "read_gavel", "read_philly", "read_prices",
    "read_snapshot", "read_throughputs", "snapshot_lines",
]  # fmt: skip
