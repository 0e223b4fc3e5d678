"""Instruments that measure the guard.

Real processes: an input pipeline that feeds an accelerator (`pipeline`), a neighbour that floods memory (`neighbour`),
a rig that runs both in windows of a known topology (`rig`). They need the native library. And a host that is simulated
(`simulate`).
"""
