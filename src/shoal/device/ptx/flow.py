"""A function's statements in one list, each name unique, and where control goes from each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from shoal.device.ptx.tree import (
    Address,
    Block,
    Declaration,
    Directive,
    Function,
    Group,
    Guard,
    Instruction,
    Label,
    Name,
    Negated,
    Number,
    Operand,
    Pair,
    Statement,
    Sum,
    Unknown,
    Vector,
    statements_in,
)

LEAVES = frozenset({"ret", "exit", "trap"})


class FlowError(ValueError):
    """Control goes where nothing is."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line


@dataclass(frozen=True)
class Flow:
    instructions: tuple[Instruction, ...]
    targets: Mapping[str, int]
    """Where each label stands; one behind the last instruction at most."""
    tables: Mapping[str, tuple[str, ...]]
    """The labels of each `.branchtargets`."""
    variables: tuple[Declaration, ...]
    """What has an address; registers have none."""
    unknown: tuple[Unknown, ...]

    def jumps(self, at: int) -> tuple[int, ...]:
        """Where a branch may go when it is taken."""
        instruction = self.instructions[at]
        match instruction.opcode, instruction.operands:
            case "bra", (Name(label),):
                return (self._target(label, instruction),)
            case "brx", (_, Name(table)) if table in self.tables:
                return tuple(self._target(label, instruction) for label in self.tables[table])
        raise FlowError(instruction.line, f"{instruction.text} goes to no label")

    def successors(self, at: int) -> tuple[int, ...]:
        instruction = self.instructions[at]
        after = (at + 1,) if at + 1 < len(self.instructions) else ()
        if instruction.opcode in ("bra", "brx"):
            taken = tuple(target for target in self.jumps(at) if target < len(self.instructions))
            return taken if instruction.guard is None else taken + after
        return () if instruction.opcode in LEAVES and instruction.guard is None else after

    def _target(self, label: str, instruction: Instruction) -> int:
        if label not in self.targets:
            raise FlowError(instruction.line, f"there is no label {label}")
        return self.targets[label]

    def loops(self) -> Iterator[frozenset[int]]:
        """The instructions of each outermost loop: the graph's strongly connected parts (Tarjan, without recursion)."""
        order: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        standing: set[int] = set()
        for root in range(len(self.instructions)):
            if root in order:
                continue
            work = [(root, iter(self.successors(root)))]
            order[root] = low[root] = len(order)
            stack.append(root)
            standing.add(root)
            while work:
                at, following = work[-1]
                for successor in following:
                    if successor not in order:
                        order[successor] = low[successor] = len(order)
                        stack.append(successor)
                        standing.add(successor)
                        work.append((successor, iter(self.successors(successor))))
                        break
                    if successor in standing:
                        low[at] = min(low[at], order[successor])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[at])
                    if low[at] == order[at]:
                        part = set()
                        while at not in part:
                            part.add(stack.pop())
                        standing -= part
                        if len(part) > 1 or at in self.successors(at):
                            yield frozenset(part)


def flow_of(function: Function) -> Flow:
    return _Flattening().of(function.body or ())


def renamed(operand: Operand, new: Callable[[str], str]) -> Operand:
    match operand:
        case Name(text):
            return Name(new(text))
        case Sum(base, offset):
            return Sum(Name(new(base.text)), Name(new(offset.text)) if isinstance(offset, Name) else offset)
        case Negated(name):
            return Negated(Name(new(name.text)))
        case Pair(first, second):
            return Pair(Name(new(first.text)), Name(new(second.text)))
        case Vector(items):
            return Vector(tuple(renamed(item, new) for item in items))
        case Address(items):
            return Address(tuple(renamed(item, new) for item in items))
        case Group(items):
            return Group(tuple(renamed(item, new) for item in items))
        case Number():
            return operand


def rename_in(instruction: Instruction, new: Callable[[str], str]) -> Instruction:
    names = instruction.names
    if [new(name) for name in names] == names:
        return instruction
    guard = instruction.guard
    return replace(
        instruction,
        operands=tuple(renamed(operand, new) for operand in instruction.operands),
        guard=None if guard is None else Guard(Name(new(guard.name.text)), guard.negated),
    )


class _Scope:
    """What a pair of braces declares; a name inside hides the same name outside."""

    def __init__(self, outer: _Scope | None, suffix: str, statements: tuple[Statement, ...]) -> None:
        self._outer = outer
        self._suffix = suffix
        self._names: set[str] = set()
        self._families: list[tuple[str, int]] = []
        for statement in statements:
            if isinstance(statement, Label):
                self._names.add(statement.name)
            elif isinstance(statement, Declaration):
                for declarator in statement.declarators:
                    if declarator.count is None:
                        self._names.add(declarator.name)
                    else:
                        self._families.append((declarator.name, declarator.count))

    def unique(self, name: str) -> str:
        if not self._suffix:  # the outermost scope keeps its names
            return name
        own, _, element = name.partition(".")
        if own in self._names or any(_member(own, prefix, count) for prefix, count in self._families):
            return f"{own}{self._suffix}{'.' if element else ''}{element}"
        return self._outer.unique(name) if self._outer is not None else name


def _member(name: str, prefix: str, count: int) -> bool:
    number = name.removeprefix(prefix)
    return name.startswith(prefix) and number.isdecimal() and int(number) < count


class _Flattening:
    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._targets: dict[str, int] = {}
        self._tables: dict[str, tuple[str, ...]] = {}
        self._variables: list[Declaration] = []
        self._unknown: list[Unknown] = []
        self._scopes = 0

    def of(self, body: tuple[Statement, ...]) -> Flow:
        self._add(body, _Scope(None, "", body))
        return Flow(
            tuple(self._instructions), self._targets, self._tables, tuple(self._variables), tuple(self._unknown)
        )

    def _add(self, statements: tuple[Statement, ...], scope: _Scope) -> None:
        label = ""
        for statement in statements:
            match statement:
                case Block(inner):
                    self._scopes += 1
                    self._add(inner, _Scope(scope, f"@{self._scopes}", inner))
                case Label(name):
                    label = scope.unique(name)
                    if label in self._targets:
                        raise FlowError(statement.line, f"the label {name} stands twice")
                    self._targets[label] = len(self._instructions)
                case Directive((".branchtargets", *labels)):
                    self._tables[label] = tuple(scope.unique(one) for one in labels if one not in ",;")
                case Declaration() if statement.space != "reg":
                    names = tuple(replace(one, name=scope.unique(one.name)) for one in statement.declarators)
                    self._variables.append(replace(statement, declarators=names))
                case Instruction():
                    self._instructions.append(rename_in(statement, scope.unique))
                case Unknown():
                    self._unknown.append(statement)


def used_labels(function: Function) -> frozenset[str]:
    """The names that instructions and tables of a function mention."""
    found: set[str] = set()
    for statement in statements_in(function.body or ()):
        if isinstance(statement, Instruction):
            found.update(statement.names)
        elif isinstance(statement, Directive | Unknown):
            found.update(statement.tokens)
    return frozenset(found)
