"""Accepts, keeps, runs and explains every workload of many tenants, and loses none.

After FfDL (Jayaram et al., Middleware'19), with the Guardian that its public code never had (`attempt_runner`). Its
loop observes what jobs ask for and what the engine says of them (`job_cache`, `collector`). It decides by pure
functions (`admission`, `transitions`) and acts through an engine (`decider`, `attempt_runner`, `reconciler`). `store`
keeps the results, `plane` puts the parts together.

Its interface is the modules below. `server` runs or starts a server, `settings` reads its settings, `backup` makes and
restores backups, and `plane.ControlPlane` is for programs that embed it. None is imported here, because helper
processes that run beside a job load this package too.
"""

__all__ = ["backup", "plane", "server", "settings"]
