"""Sweeps: one job array, each task of which runs the same manifest with other values of some parameters.

It senses what trials report. It decides, by pure functions, which values a trial has and which trials go on. It acts by
writing the values into the words and variables of a task, and by ending trials that are hopeless.
"""

from shoal.sweep.asha import goes_on, rungs
from shoal.sweep.trials import Sweep, substitute, title, trials

__all__ = ["Sweep", "goes_on", "rungs", "substitute", "title", "trials"]
