"""Accepts, keeps, runs and explains every workload of many tenants, and loses none.

After FfDL (Jayaram et al., Middleware'19), with the Guardian that its public code never had (`attempts.runner`). Its
loop observes what jobs ask for and what the engine says of them (`jobs.cache`, `attempts.collector`). It decides by
pure functions (`admission`, `jobs.transitions`) and acts through an engine (`extensions.decider`, `attempts`). `store`
keeps the results, `plane` puts the parts together.

Its interface is the modules below. `server` runs or starts a server, `settings` reads its settings, `home.backup`
makes and restores backups, and `plane.ControlPlane` is for programs that embed it. None is imported here, because
helper processes that run beside a job load this package too.
"""

__all__ = ["home", "plane", "server", "settings"]
