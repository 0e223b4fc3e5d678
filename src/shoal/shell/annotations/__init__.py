"""Annotations: what a command reads and writes, by its arguments. They are data (TOML files beside this one and in the
user's folder); `match` holds a list of arguments against them as getopt would, and what it does not understand runs
here.
"""

from shoal.shell.annotations.load import load, parse, shipped
from shoal.shell.annotations.match import Match, NotUnderstood, match
from shoal.shell.annotations.model import Annotation, Operand, Option, Split

__all__ = [
    "Annotation", "Match", "NotUnderstood", "Operand", "Option", "Split", "load", "match", "parse", "shipped",
]  # fmt: skip
