"""How POSH (USENIX ATC'20) places a pipeline: its published heuristic and its dynamic program, to be compared with."""

from shoal.shell.baselines.posh import dynamic_program, heuristic

__all__ = ["dynamic_program", "heuristic"]
