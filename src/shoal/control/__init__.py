"""Accepts, keeps, runs and explains every workload of many tenants, and loses none.

After FfDL (Jayaram et al., Middleware'19), with the Guardian that its public code never had (`attempt_runner`). The
loop: it senses what jobs ask for and what the engine says of them (`job_cache`, `collector`), decides by a pure
function (`admission`, `transitions`), and acts through an engine (`decider`, `attempt_runner`, `reconciler`); `store`
makes it last, `plane` puts it together.

Public: `lifecycle`, `manifest`, `records`, `admission`, `home`, `config`, `server`, and `plane.ControlPlane` for those
who embed it. Nothing is imported here, for helpers that run beside a job load this package too.
"""
