"""Sweeps: one job array, each task of which runs the same manifest with other values of some parameters.

It senses what trials report. It decides, by pure functions, which values a trial has and which trials go on. It acts by
writing the values into the words and variables of a task, and by ending trials that are hopeless.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.sweep.asha import goes_on, rungs
    from shoal.sweep.trials import Sweep, every_trial, substitute, title

__all__ = ["Sweep", "every_trial", "goes_on", "rungs", "substitute", "title"]

__getattr__ = on_first_use(globals(), {
    "asha": "goes_on rungs",
    "trials": "Sweep every_trial substitute title",
})  # fmt: skip
