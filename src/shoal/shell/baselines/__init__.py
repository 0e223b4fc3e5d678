"""Placement of a pipeline as in POSH (USENIX ATC'20): its published heuristic and its dynamic program, to be compared
with.
"""

from shoal.shell.baselines.posh import dynamic_program, heuristic

__all__ = ["dynamic_program", "heuristic"]
