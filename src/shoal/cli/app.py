"""The tree of commands. The modules register their own; what a command needs it imports when it runs."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="shoal",
    help="Many tenants share a few accelerators. Start with `shoal up --detach`, then `shoal run -f job.yaml`.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or input, 3 not found, 4 no server, 5 not allowed, 6 conflict.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

from shoal.cli import (  # noqa: E402
    demo,
    guard,
    jobs,
    manifests,
    measure,
    schedule,
    schedule_live,
    serve,
    server,
    services,
    streams,
    tenants,
    top,
)  # fmt: skip

for module in (
    server, jobs, streams, services, serve, measure, schedule, schedule_live, guard, top, tenants, manifests, demo
):  # fmt: skip
    module.register(app)
