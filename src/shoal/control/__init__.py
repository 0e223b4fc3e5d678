"""Accepts, keeps, runs and explains every workload of many tenants, and loses none.

After FfDL (Jayaram et al., Middleware'19), with the Guardian that its public code never had (`attempt_runner`). The
loop: it senses what jobs ask for and what the engine says of them (`job_cache`, `collector`), decides by a pure
function (`admission`, `transitions`), and acts through an engine (`decider`, `attempt_runner`, `reconciler`); `store`
makes it last, `plane` puts it together.

Its face is the modules below: `server` runs a server or starts one, `settings` reads what it is started with, `backup`
makes and restores backups, and `plane.ControlPlane` is for programs that embed it. None is imported here, for helpers
that run beside a job load this package too.
"""

__all__ = ["backup", "plane", "server", "settings"]
