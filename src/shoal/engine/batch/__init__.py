"""The shared part of engines for clusters that have a scheduler of their own: one job of the cluster per gang, our
supervisor for each rank, on a shared directory.

Truth stands on the shared directory, as with the local engine; the cluster tells where a job can still have processes.
A job's name is the gang's, so that any later server finds it. The cluster may not start a gang again by itself: a
second job of its name ends at once. What the cluster gives up is fenced before it is called lost: see `rank`.
"""
