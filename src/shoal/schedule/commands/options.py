"""The options of `shoal schedule`: each once, and together those that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shoal.schedule.choices import Mechanism

in_jobs, in_cluster, in_policy, in_costs, in_output, in_tails = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Jobs", "Cluster", "Policy", "Costs and failures", "Output", "Heavy-tailed")
)

TraceOption = Annotated[
    Path, in_jobs("--trace", help="Gavel's trace (both formats), Philly-style .csv, or a snapshot (JSON lines).")
]
ThroughputsOption = Annotated[
    Path | None, in_jobs("--throughputs", help="Measured speeds: Gavel's JSON; else a made-up example.")
]
MeasureOption = Annotated[str | None, in_jobs("--measure-jobs", help="Count only jobs A:B, by arrival.")]
ScaleFlag = Annotated[
    bool, in_jobs("--scale-gangs", help="Gangs that were not measured are as fast, by accelerator, as smaller ones.")
]
ElasticFlag = Annotated[
    bool,
    in_jobs("--elastic", help="Jobs may have every size that their kind was measured with; policies that cannot resize "
            "run them as they are given."),
]  # fmt: skip
UnsavedOption = Annotated[
    float, in_jobs("--unsaved", min=0, max=1, help="The part of the jobs that do not save their work.")
]
ClusterOption = Annotated[
    str | None,
    in_cluster("--cluster", "-c", help="As in v100=8,p100=16@1.46 (dollars an hour); else the snapshot's."),
]
RoundOption = Annotated[float, in_cluster("--round", help="Seconds of a round.")]
NodeOption = Annotated[int | None, in_cluster("--gpus-per-node", min=1, help="Accelerators of a machine.")]
SpreadFlag = Annotated[
    bool,
    in_cluster("--unconsolidated", help="Let gangs be spread over machines, at the speeds of TYPE_unconsolidated."),
]
PoliciesOption = Annotated[str, in_policy("--policy", "-p", help="One, or several separated by commas.")]
AgnosticFlag = Annotated[bool, in_policy("--agnostic", help="Policies take all types for equal.")]
SharingFlag = Annotated[bool, in_policy("--space-sharing", help="Two jobs may share accelerators.")]
LengthsOption = Annotated[str, in_policy("--lengths", help="What policies know: known, predicted:FACTOR, unknown.")]
MechanismOption = Annotated[
    Mechanism,
    in_policy("--mechanism", help="The loop of the control plane; to compare, Gavel's rounds with our policies, or its "
              "published rounds and programs to the letter."),
]  # fmt: skip
RestartOption = Annotated[float, in_costs("--restart-cost", min=0, help="Seconds that a migration loses.")]
CheckpointOption = Annotated[str | None, in_costs("--checkpoint", help="EVERY:COST in seconds, as in 1800:10.")]
MtbfOption = Annotated[float | None, in_costs("--mtbf", help="Hours between failures of one accelerator.")]
PricesOption = Annotated[Path | None, in_costs("--prices", help="CSV: seconds,type,usd_per_hour.")]
OutOption = Annotated[str | None, in_output("--json", metavar="[OUT]", help="JSON, on stdout or into a file.")]
CsvOption = Annotated[Path | None, in_output("--csv", help="One row for each job.")]
PlotOption = Annotated[Path | None, in_output("--plot", help="An HTML page with figures.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")]
SnapshotOption = Annotated[Path, typer.Option("--snapshot", help="The live state as JSON lines.")]
PolicyOption = Annotated[str, typer.Option("--policy", "-p", help="One policy.")]


@dataclass(frozen=True, slots=True)
class Play:
    """How a trace is played, whether its policies are compared or not."""

    throughputs: ThroughputsOption = None
    cluster: ClusterOption = None
    round: RoundOption = 360.0
    seed: SeedOption = 0
    gpus_per_node: NodeOption = None
    measure_jobs: MeasureOption = None
    restart_cost: RestartOption = 0.0
    lengths: LengthsOption = "known"
    elastic: ElasticFlag = False
    unsaved: UnsavedOption = 0.0


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of policies."""

    agnostic: AgnosticFlag = False
    space_sharing: SharingFlag = False
