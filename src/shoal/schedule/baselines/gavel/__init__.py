"""Gavel's scheduler (OSDI'20): its rounds and its accounting, with our policies or with its own programs.

`GavelRounds` is its mechanism, `Published` the same with the habits of its code, `simulate` its simulator.
"""

from shoal.schedule.baselines.gavel.mechanism import GavelRounds, GavelSettings
from shoal.schedule.baselines.gavel.published import Published

__all__ = ["GavelRounds", "GavelSettings", "Published"]
