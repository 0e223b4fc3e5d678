"""Real processes with which `shoal.host` is measured: an input pipeline that feeds an accelerator (`pipeline`), a
neighbour that floods memory (`neighbour`), and a rig that runs both in windows of a known topology (`rig`).
Used by the benchmarks, `shoal guard bench` and the demo. Needs numpy and the native library.
"""
