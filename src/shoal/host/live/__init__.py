"""The server guards its own workloads: guaranteed jobs and services keep their speed beside best-effort ones.

The guard (`shoal.host.guard`) is a process of its own, a child of the server that ends with it. `groups` says, purely,
which groups there are from what runs and what manifests say; the `GuardReconciler` writes that to
HOME/guard/server.json, which the guard follows, and starts the guard again when it dies. That there is no guard is
never a reason to stop.
"""
