"""The Linux kernel as the guard reads it: files, cgroup hierarchies, topology, counters, and the native pacer."""
