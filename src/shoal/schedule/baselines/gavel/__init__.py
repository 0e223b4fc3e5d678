"""Gavel's scheduler (OSDI'20), to compare with: its rounds and accounting, with our policies or its programs."""

from shoal.schedule.baselines.gavel.rounds import GavelRounds, GavelSettings

__all__ = ["GavelRounds", "GavelSettings"]
