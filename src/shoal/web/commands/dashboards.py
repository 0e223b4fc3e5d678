"""`shoal dashboards`: files for Grafana and Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.base.files import write_whole

RULES = "shoal-alerts.yaml"


def register(app: typer.Typer) -> None:
    command(app, "dashboards", takes=("json",), rich_help_panel=TOOLS,
            short_help="Write dashboards for Grafana and alerts for Prometheus")(dashboards)  # fmt: skip


def dashboards(
    context: CommandContext,
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to write to.", file_okay=False)],
) -> None:
    """Write dashboards as JSON, which Grafana imports, and a file of alert rules for Prometheus.

    They use the metrics of this version. Files of these names are replaced.
    """
    import yaml

    from shoal.web.grafana.alerts import rules
    from shoal.web.grafana.boards import BOARDS
    from shoal.web.grafana.panels import board_json

    out.mkdir(parents=True, exist_ok=True)
    texts = {f"shoal-{one.name}.json": json.dumps(board_json(one), indent=2) + "\n" for one in BOARDS}
    texts[RULES] = yaml.safe_dump(rules(), sort_keys=False, width=120)
    for name, text in texts.items():
        write_whole(out / name, text, mode=0o644)
    paths = [str(out / name) for name in texts]
    context.show({"files": paths}, lambda: print("\n".join(paths)))
