"""Model of an annotation."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What an argument is. A list is taken apart at its separator."""

    TEXT = "str"
    INPUT = "input"
    OUTPUT = "output"
    INPUTS = "input-list"
    OUTPUTS = "output-list"
    PROGRAM = "program"
    """Text that the command runs; it is held against `refuses`."""
    FOLDER = "folder"
    """A file or a folder with all that is in it."""


class Split(StrEnum):
    """How the outputs of pieces become one, where the inputs of a command are dealt out."""

    NEVER = ""
    CONCAT = "concat"
    MERGE = "merge"
    """By the command itself, with `-m` before its own flags (`sort`)."""
    SUM = "sum"
    """Numbers in equal places are added (`grep -c` of a pipe, `wc -l`)."""
    AGAIN = "again"
    """By the command itself, which reads the outputs one after another (`head`, `tail`, `uniq`)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option under all its names. `effects` are words of the language (see docs) or markers for `unless`."""

    names: tuple[str, ...]
    kind: Kind | None = None
    optional: bool = False
    separator: str = ","
    effects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Operand:
    """One position, or with `many` all that are left. It is skipped where an option with the marker `unless` is
    given."""

    kind: Kind
    many: bool = False
    optional: bool = False
    unless: str = ""
    count: int = 1
    separator: str = ","


@dataclass(frozen=True, slots=True)
class Annotation:
    """One command, or one way of calling it.

    `ratio` is the expected bytes of output over those of input, until it is measured; `bytes_per_s` likewise. `across`:
    a command that can be run on each piece of its stdin alone, and makes whole lines of whole lines; `across_if`: only
    where its programs, or else the values of its options and operands with NULs between them, match this. `text`: it
    takes its whole input for binary where some of it is. `join`: how outputs over pieces of its stdin become one,
    where they do not just follow one another; only if all values of its options match `join_values`. `writes`: it
    changes files, so it is never run twice. `names`: its output may hold names of paths. `terminal`: it behaves
    otherwise on a terminal. `environment`: variables that it reads, beside those of the locale. `home_files`: files of
    the user that it reads. `requires`: effects without which a call is not understood. `touches`: files below the
    folder that it changes beside its arguments. `finds`: its status is 0 where any of its inputs has what it looks
    for."""

    name: str
    subcommand: str = ""
    options: tuple[Option, ...] = ()
    operands: tuple[Operand, ...] = ()
    ratio: float = 1.0
    bytes_per_s: float = 500e6
    split: Split = Split.NEVER
    split_adds: tuple[str, ...] = ()
    across: bool = False
    across_if: str = ""
    text: bool = False
    join: Split = Split.NEVER
    join_values: str = ".*"
    cwd: bool = False
    writes: bool = False
    names: bool = False
    terminal: bool = False
    stdin: bool = True
    numeric: bool = False
    stops: bool = False
    single_dash: bool = False
    refuses: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    home_files: tuple[str, ...] = ()
    starts_others: bool = False
    requires: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    finds: bool = False
    write_error: int = 1
    by_name: dict[str, Option] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.by_name.update({name: one for one in self.options for name in one.names})

    @property
    def title(self) -> str:
        return f"{self.name} {self.subcommand}".strip()
