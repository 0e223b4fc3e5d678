"""Safety check: the entries that may be transformed, and why the others may not.

A transformed kernel runs in parts: some blocks now, the others later, never all at once. That is safe when no block
waits for another one, and when the block's number and the grid's size are read only where the transformation replaces
them. What cannot be proven to be so is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeGuard

from shoal.device.ptx.flow import Flow, FlowError, flow_of
from shoal.device.ptx.launch import LAUNCH_ALIGN, LAUNCH_BYTES
from shoal.device.ptx.tree import (
    Address,
    Directive,
    Function,
    Group,
    Instruction,
    Module,
    Name,
    Operand,
    Pair,
    Vector,
    layout,
    names_of,
)


class Cause(StrEnum):
    """Why an entry is not transformed."""

    NOT_UNDERSTOOD = "not-understood"
    CLUSTER = "cluster"
    COOPERATIVE = "cooperative"
    GRID_ID = "grid-id"
    BLOCK_STEALING = "block-stealing"
    VECTOR_BLOCK_ID = "vector-block-id"
    NARROW_BLOCK_ID = "narrow-block-id"
    FUNCTION_READS_BLOCK_ID = "function-reads-block-id"
    UNKNOWN_CALL = "unknown-call"
    DYNAMIC_PARALLELISM = "dynamic-parallelism"
    RECURSION = "recursion"
    MULTICAST_MEMORY = "multicast-memory"
    OWN_GLOBAL_VARIABLE = "own-global-variable"
    WAITS = "waits"
    PARAMETERS = "parameters"
    NAME_TAKEN = "name-taken"


@dataclass(frozen=True)
class Refusal:
    cause: Cause
    detail: str
    line: int = 0
    """Where in the text; 0: nowhere in particular."""

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}" + (f" (line {self.line})" if self.line else "")


SYSTEM_CALLS = frozenset({"vprintf", "malloc", "free", "__assertfail"})
"""Functions of the driver that neither know the block's number nor wait for other blocks."""

_LAUNCHES = ("cudaLaunchDevice", "cudaGetParameterBuffer")

BLOCK_ID = re.compile(r"%n?ctaid(?:\.[xyz])?")
_CLUSTER_NAME = re.compile(r"%n?cluster|%is_explicit_cluster")
_CLUSTER_OPCODES = frozenset({"mapa", "getctarank"})
_UNCACHED = frozenset({"volatile", "acquire", "relaxed", "mmio", "cv", "cg"})
_OWN_SPACES = frozenset({"shared", "shared::cta", "local", "param", "param::entry", "param::func", "const"})
_WIDE_SCOPES = frozenset({"gl", "sys", "gpu", "cluster"})


class Examination:
    """Of the entries of one module."""

    def __init__(self, module: Module) -> None:
        self._functions = {function.name: function for function in module.functions if function.body is not None}
        self._flows: dict[str, Flow] = {}
        version = next((item.tokens[1] for item in module.items if _is_version(item)), "1.0")
        self._parameter_bytes = 32764 if tuple(map(int, version.split("."))) >= (8, 1) else 4096

    def refusal_of(self, entry: Function) -> Refusal | None:
        """The first reason against transforming an entry, or None where it is safe."""
        try:
            return self._examined(entry)
        except FlowError as error:
            return Refusal(Cause.NOT_UNDERSTOOD, str(error), error.line)

    def _examined(self, entry: Function) -> Refusal | None:
        called, refusal = self._reached(entry)
        return (
            refusal
            or self._head(entry)
            or next(filter(None, (self._statements(entry, name) for name in (entry.name, *called))), None)
            or next(filter(None, (self._waits(name) for name in (entry.name, *called))), None)
        )

    def _head(self, entry: Function) -> Refusal | None:
        for directive in entry.directives:
            if "cluster" in directive[0]:
                return Refusal(Cause.CLUSTER, f"it has {directive[0]}", entry.line)
        size = layout(entry.parameters or ())[1]
        if -(-size // LAUNCH_ALIGN) * LAUNCH_ALIGN + LAUNCH_BYTES > self._parameter_bytes:
            detail = f"{size} bytes of parameters leave no room for {LAUNCH_BYTES} more"
            return Refusal(Cause.PARAMETERS, detail, entry.line)
        return None

    def _flow(self, name: str) -> Flow:
        if name not in self._flows:
            self._flows[name] = flow_of(self._functions[name])
        return self._flows[name]

    def _calls(self, name: str) -> Iterator[Instruction]:
        return (instruction for instruction in self._flow(name).instructions if instruction.opcode == "call")

    def _reached(self, entry: Function) -> tuple[tuple[str, ...], Refusal | None]:
        """The device functions that the entry may call, directly or not."""
        called: dict[str, None] = {}
        path: list[str] = []

        def visit(name: str) -> Refusal | None:
            path.append(name)
            for instruction in self._calls(name):
                callee = _callee(instruction)
                if callee in path:
                    return Refusal(Cause.RECURSION, f"{callee} calls itself", instruction.line)
                if callee in self._functions:
                    if callee not in called:
                        called[callee] = None
                        if (refusal := visit(callee)) is not None:
                            return refusal
                elif callee.startswith(_LAUNCHES):
                    return Refusal(Cause.DYNAMIC_PARALLELISM, f"it calls {callee}", instruction.line)
                elif callee not in SYSTEM_CALLS:
                    return Refusal(Cause.UNKNOWN_CALL, f"it calls {callee}", instruction.line)
            path.pop()
            return None

        refusal = visit(entry.name)
        return tuple(called), refusal

    def _statements(self, entry: Function, name: str) -> Refusal | None:
        flow = self._flow(name)
        for unknown in flow.unknown:
            return Refusal(Cause.NOT_UNDERSTOOD, " ".join(unknown.tokens)[:80], unknown.line)
        for variable in flow.variables:
            if variable.space == "global":
                shown = variable.declarators[0].name
                return Refusal(Cause.OWN_GLOBAL_VARIABLE, f"a copy would have its own {shown}", variable.line)
        for instruction in flow.instructions:
            refusal = _instruction(instruction) or (_block_id(instruction, name) if name != entry.name else None)
            if refusal is not None:
                return refusal
        return None

    def _waits(self, name: str) -> Refusal | None:
        flow = self._flow(name)
        for loop in flow.loops():
            called = [_callee(flow.instructions[at]) for at in loop if flow.instructions[at].opcode == "call"]
            fenced = any(_is_fence(flow.instructions[at]) for at in loop) or any(map(self._fences, called))
            for at in loop:
                instruction = flow.instructions[at]
                if instruction.opcode == "call" and self._looks_outside(_callee(instruction), fenced):
                    detail = f"a loop calls {_callee(instruction)}, which reads what other blocks write"
                    return Refusal(Cause.WAITS, detail, instruction.line)
            if (refusal := _loop_waits(flow, loop, fenced)) is not None:
                return refusal
        return None

    def _fences(self, name: str) -> bool:
        """Whether a device function has a fence, or calls one that has."""
        if name not in self._functions:
            return False
        called = (_callee(call) for call in self._calls(name))
        return any(map(_is_fence, self._flow(name).instructions)) or any(map(self._fences, called))

    def _looks_outside(self, name: str, fenced: bool) -> bool:
        """`fenced`: there is a fence in the loop that calls it, or in anything that the loop calls."""
        if name not in self._functions:
            return False
        return any(_observes(instruction, fenced) for instruction in self._flow(name).instructions) or any(
            self._looks_outside(_callee(call), fenced) for call in self._calls(name)
        )


def _is_version(item: object) -> TypeGuard[Directive]:
    return isinstance(item, Directive) and item.tokens[0] == ".version"


def _callee(call: Instruction) -> str:
    """The function's name, or the register that holds its address."""
    return next((operand.text for operand in call.operands if isinstance(operand, Name)), "")


def _instruction(instruction: Instruction) -> Refusal | None:
    """What no part of a transformed kernel may do."""
    text, line = instruction.text, instruction.line
    if instruction.opcode in _CLUSTER_OPCODES or text.startswith("barrier.cluster"):
        return Refusal(Cause.CLUSTER, f"it uses {text}", line)
    if any("multicast" in word or word == "cta_group::2" for word in instruction.modifiers):
        return Refusal(Cause.CLUSTER, f"it uses {text}", line)
    if instruction.opcode == "clusterlaunchcontrol":
        return Refusal(Cause.BLOCK_STEALING, f"it uses {text}", line)
    if instruction.opcode == "multimem":
        return Refusal(Cause.MULTICAST_MEMORY, f"it uses {text}", line)
    for name in instruction.names:
        if _CLUSTER_NAME.match(name):
            return Refusal(Cause.CLUSTER, f"it reads {name}", line)
        if name.startswith("%envreg"):
            return Refusal(Cause.COOPERATIVE, f"it reads {name}, as a barrier of the grid does", line)
        if name == "%gridid":
            return Refusal(Cause.GRID_ID, "it reads %gridid", line)
        if name in ("%ctaid", "%nctaid"):
            return Refusal(Cause.VECTOR_BLOCK_ID, f"it reads all of {name} at once", line)
        if BLOCK_ID.fullmatch(name) and instruction.modifiers[-1:] and not instruction.modifiers[-1].endswith("32"):
            return Refusal(Cause.NARROW_BLOCK_ID, f"{text} reads {name}", line)
    return None


def _block_id(instruction: Instruction, function: str) -> Refusal | None:
    for name in instruction.names:
        if BLOCK_ID.fullmatch(name):
            return Refusal(Cause.FUNCTION_READS_BLOCK_ID, f"{function} reads {name}", instruction.line)
    return None


def _is_fence(instruction: Instruction) -> bool:
    if instruction.opcode in ("membar", "fence"):
        return any(word in _WIDE_SCOPES for word in instruction.modifiers)
    return instruction.opcode == "nanosleep"


def _observes(instruction: Instruction, fenced: bool) -> bool:
    """Whether the result depends on what other blocks do meanwhile. Where fences order them, plain loads count too;
    without, a program may not rely on seeing anything."""
    words = frozenset(instruction.modifiers)
    if instruction.opcode == "cp":
        return fenced and _copies_from_global(instruction)
    if words & _OWN_SPACES:
        return False
    if instruction.opcode == "ld":
        return bool(words & _UNCACHED) or (fenced and "nc" not in words)
    return instruction.opcode == "atom"


def _copies_from_global(instruction: Instruction) -> bool:
    """The target's space stands first: a copy from shared to global memory is a store."""
    spaces = [word.partition("::")[0] for word in instruction.modifiers]
    spaces = [word for word in spaces if word in ("global", "shared")]
    return bool(spaces) and spaces[-1] == "global"


def _reads_memory(instruction: Instruction) -> bool:
    addressed = any(isinstance(operand, Address) for operand in instruction.operands)
    return addressed or instruction.opcode in ("wgmma", "tcgen05")


_STORES = frozenset({"st", "red", "atom", "stmatrix", "mbarrier", "cp"})


def _loop_waits(flow: Flow, loop: frozenset[int], fenced: bool) -> Refusal | None:
    """Whether the way out of a loop may depend on other blocks.

    What the loop observes taints what is computed from it. A tainted branch is a wait, save the retry of a
    compare-and-swap: that one ends as soon as no other thread was faster.
    """
    body = [flow.instructions[at] for at in sorted(loop)]
    observing = [instruction for instruction in body if _observes(instruction, fenced)]
    if not observing:
        return None
    retries = [one for one in _retries(body) if _ends_when_equal(flow, loop, one)]
    tainted: set[str] = set()
    memory = any(instruction.opcode == "cp" for instruction in observing)
    before = -1
    while before != len(tainted) + memory:
        before = len(tainted) + memory
        for instruction in body:
            if instruction in retries:
                continue
            told = any(name in tainted for name in _read(instruction))
            if told or instruction in observing or (memory and _reads_memory(instruction)):
                tainted.update(_written(instruction))
            memory = memory or (told and instruction.opcode in _STORES)
    for instruction in body:
        leaves = instruction.opcode in ("bra", "brx", "ret", "exit", "trap")
        if leaves and any(name in tainted for name in instruction.names):
            return Refusal(
                Cause.WAITS,
                f"a loop's {instruction.text} depends on {observing[0].text} at line {observing[0].line}",
                instruction.line,
            )
    return None


def _retries(body: list[Instruction]) -> list[Instruction]:
    """The comparisons that end a lock-free retry: a compare-and-swap found what the one before had left."""
    definitions: dict[str, list[Instruction]] = {}
    for instruction in body:
        for name in _written(instruction):
            definitions.setdefault(name, []).append(instruction)

    def copies(name: str) -> str:
        """The register that `name` is a copy of, followed through moves."""
        seen = set()
        while name not in seen and len(definitions.get(name, ())) == 1:
            seen.add(name)
            (one,) = definitions[name]
            if one.opcode != "mov" or one.guard is not None or not isinstance(one.operands[1], Name):
                break
            name = one.operands[1].text
        return name

    found = []
    for swap in body:
        if swap.opcode != "atom" or "cas" not in swap.modifiers or swap.guard is not None:
            continue
        match swap.operands:
            case (Name(result), Address() as address, Name(expected), _) if copies(expected) == result:
                if any(name in definitions for name in names_of(address)):
                    continue
                for compare in body:
                    if (
                        compare.opcode == "setp"
                        and compare.guard is None
                        and isinstance(compare.operands[0], Name)
                        and compare.modifiers[0] in ("eq", "ne")
                        and len(compare.operands) == 3
                    ):
                        sides = [name for operand in compare.operands[1:] for name in names_of(operand)]
                        if sorted(sides) == sorted((result, expected)):
                            found.append(compare)
    return found


def _ends_when_equal(flow: Flow, loop: frozenset[int], compare: Instruction) -> bool:
    """Whether the comparison decides nothing but branches, and equality leaves the loop with each of them. A loop that
    goes on while the value stays the same waits for another thread to change it."""
    for at in loop:
        instruction = flow.instructions[at]
        if not set(_written(compare)) & set(_read(instruction)):
            continue
        if instruction.opcode != "bra" or instruction.guard is None:
            return False
        taken = (compare.modifiers[0] == "eq") != instruction.guard.negated
        if any(following in loop for following in (flow.jumps(at) if taken else (at + 1,))):
            return False
    return True


_NO_RESULT = frozenset({"st", "red", "bra", "brx", "ret", "exit", "stmatrix", "call"})


def _written(instruction: Instruction) -> Iterator[str]:
    match instruction.operands:
        case (Name() | Pair() | Vector() | Group() as first, *_) if instruction.opcode not in _NO_RESULT:
            yield from names_of(first)


def _read(instruction: Instruction) -> Iterator[str]:
    if instruction.guard is not None:
        yield instruction.guard.name.text
    operands: tuple[Operand, ...] = instruction.operands
    own = operands and isinstance(operands[0], Name | Pair | Vector) and instruction.opcode not in _NO_RESULT
    for operand in operands[1:] if own else operands:
        yield from names_of(operand)
