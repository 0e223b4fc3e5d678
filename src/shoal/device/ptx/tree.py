"""The typed tree of a PTX module.

Everything that ptxas reads is in the tree, comments and blanks are not. Two trees are equal when they print the same
text; line numbers, which messages need, do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Tokens = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A register, special register, variable, parameter, function, label, or the sink `_`."""

    text: str


@dataclass(frozen=True, slots=True)
class Number:
    """A literal as it is written, with its sign: `-4`, `0x1F`, `0f3F800000`, `1.5`."""

    text: str


@dataclass(frozen=True, slots=True)
class Sum:
    """A name and what is added to it: `%rd1+16`."""

    base: Name
    offset: Name | Number


@dataclass(frozen=True, slots=True)
class Negated:
    """A predicate turned round: `!%p1`."""

    name: Name


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations: `%p1|%p2`."""

    first: Name
    second: Name


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces: `{%r1, %r2}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """What stands in brackets: `[%rd1+4]`, and a tensor's coordinates: `[%rd1, {%r1, %r2}]`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Operands in parentheses: the arguments or results of a call."""

    items: tuple[Operand, ...]


Operand = Name | Number | Sum | Negated | Pair | Vector | Address | Group


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate before an instruction: `@%p1` or `@!%p1`."""

    name: Name
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    opcode: str
    modifiers: Tokens = ()
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    line: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    @property
    def names(self) -> list[str]:
        """All names in the operands and the guard."""
        found = [] if self.guard is None else [self.guard.name.text]
        for operand in self.operands:
            if type(operand) is Name:  # nearly all are
                found.append(operand.text)
            else:
                found.extend(names_of(operand))
        return found


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Declarator:
    """One declared name: `%r<5>` has a count, `table[2][]` dimensions, `x = 3` an initial value."""

    name: str
    count: int | None = None
    dimensions: tuple[str, ...] = ()
    initial: Tokens = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """A variable, register or parameter: `.extern .shared .align 16 .b8 scratch[];`."""

    space: str
    specifiers: Tokens
    declarators: tuple[Declarator, ...]
    linkage: Tokens = ()
    line: int = field(default=0, compare=False)

    @property
    def type(self) -> str:
        """The element's type without the dot: `b32`, `pred`."""
        return next((word[1:] for word in self.specifiers if TYPE.fullmatch(word)), "")

    @property
    def element_bytes(self) -> int:
        vector = next((int(word[2:]) for word in self.specifiers if word in (".v2", ".v4", ".v8")), 1)
        return vector * width_bytes(self.type)

    @property
    def align_bytes(self) -> int:
        """Of the variable itself, not of what a parameter points to."""
        own = self.specifiers[: self.specifiers.index(".ptr")] if ".ptr" in self.specifiers else self.specifiers
        return int(own[own.index(".align") + 1]) if ".align" in own else max(1, self.element_bytes)

    def bytes_of(self, declarator: Declarator) -> int:
        size = self.element_bytes
        for dimension in declarator.dimensions:
            size *= int(dimension or "0", 0)
        return size


@dataclass(frozen=True, slots=True)
class Directive:
    """A statement that begins with a dot and declares nothing: `.loc`, `.pragma`, `.branchtargets`, `.section`, ..."""

    tokens: Tokens
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """A nested scope."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A statement that the parser does not know, kept word by word."""

    tokens: Tokens
    line: int = field(default=0, compare=False)


Statement = Instruction | Label | Declaration | Directive | Block | Unknown


@dataclass(frozen=True, slots=True)
class Function:
    """An entry or a device function; one without a body is only declared."""

    name: str
    entry: bool
    parameters: tuple[Declaration, ...] | None
    body: tuple[Statement, ...] | None
    results: tuple[Declaration, ...] | None = None
    linkage: Tokens = ()
    attributes: Tokens = ()
    directives: tuple[Tokens, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Module:
    items: tuple[Function | Declaration | Directive | Unknown, ...]

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def entries(self) -> tuple[Function, ...]:
        return tuple(function for function in self.functions if function.entry and function.body is not None)


TYPE = re.compile(r"\.(?:pred|[bsuf](?:8|16|32|64|128)|f16x2|bf16|bf16x2|tf32|texref|samplerref|surfref)")
_WIDTH = re.compile(r"\d+")


def width_bytes(type_: str) -> int:
    """Bytes of one value of a type: 4 for `u32` and `f16x2`, 8 for references to textures, 1 for a predicate."""
    if type_.endswith("ref"):
        return 8
    bits = _WIDTH.search(type_)
    return 1 if bits is None else int(bits.group()) // 8 * (2 if type_.endswith("x2") else 1)


def layout(parameters: tuple[Declaration, ...]) -> tuple[dict[str, int], int]:
    """Where each parameter lies, and the bytes of all."""
    offsets, end = {}, 0
    for parameter in parameters:
        for declarator in parameter.declarators:
            end = -(-end // parameter.align_bytes) * parameter.align_bytes
            offsets[declarator.name] = end
            end += parameter.bytes_of(declarator)
    return offsets, end


def names_of(operand: Operand) -> Iterator[str]:
    match operand:
        case Name(text):
            yield text
        case Sum(base, offset):
            yield base.text
            yield from names_of(offset)
        case Negated(name):
            yield name.text
        case Pair(first, second):
            yield first.text
            yield second.text
        case Vector(items) | Address(items) | Group(items):
            for item in items:
                yield from names_of(item)
        case Number():
            pass


def statements_in(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements, nested scopes opened."""
    for statement in body:
        if isinstance(statement, Block):
            yield from statements_in(statement.statements)
        else:
            yield statement
