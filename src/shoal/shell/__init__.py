"""Shell: commands of ordinary scripts run where their data is (after POSH, ATC'20).

A shell runs the script. A small library in it sees each program that is about to start, with all words expanded;
commands that read much and write little and whose files lie on another machine run there, through a proxy with the same
names of paths. The rest runs here. A pure plan decides (`plan`), annotations say what commands do, and what is not
understood runs here.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.shell.annotations import Annotation, Match, NotUnderstood, load, match
    from shoal.shell.sites import Site, Sites

__all__ = ["Annotation", "Match", "NotUnderstood", "Site", "Sites", "load", "match"]

__getattr__ = on_first_use(globals(), {
    "annotations": "Annotation Match NotUnderstood load match",
    "sites": "Site Sites",
})  # fmt: skip
