"""Shoal's own policies, one file each: pure functions from a `Problem` to an `Allocation`.

`shoal.schedule.policies` is their table. A policy reads no clock and draws no unseeded random number; what it may use
of a problem is said in its docstring. All share one linear program (`shoal.schedule.solve`), and differ in what they
make as large as possible.
"""
