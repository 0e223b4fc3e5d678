"""An entry ready to be interpreted: device functions copied in at their calls, and a place for each variable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from shoal.device.ptx.flow import Flow, flow_of, rename_in
from shoal.device.ptx.tree import (
    Declaration,
    Declarator,
    Function,
    Group,
    Guard,
    Instruction,
    Module,
    Name,
    Operand,
    layout,
)

SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = 1 << 41
"""Where shared and local memory lie among generic addresses."""


class InterpreterError(Exception):
    """The interpreter cannot go on."""


class UnsupportedInstruction(InterpreterError):
    """An instruction that the interpreter does not know; `name` says which."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__(f"line {line}: the interpreter does not know {name}")
        self.name = name
        self.line = line


@dataclass(frozen=True)
class Program:
    flow: Flow
    parameters: Mapping[str, int]
    """Where each parameter lies among `parameter_bytes`."""
    parameter_bytes: int
    shared: Mapping[str, int]
    shared_bytes: int
    local: Mapping[str, int]
    """Each thread's own variables, arguments of calls among them."""
    local_bytes: int


def link(module: Module, name: str) -> Program:
    entry = next((entry for entry in module.entries if entry.name == name), None)
    if entry is None:
        raise InterpreterError(f"there is no entry {name}")
    flow = _Linker(module).link(entry)
    parameters, parameter_bytes = layout(entry.parameters or ())
    outside = [item for item in module.items if isinstance(item, Declaration) and item.space == "shared"]
    shared, shared_bytes = _places([*outside, *(one for one in flow.variables if one.space == "shared")])
    local, local_bytes = _places([one for one in flow.variables if one.space in ("local", "param")])
    return Program(flow, parameters, parameter_bytes, shared, shared_bytes, local, local_bytes)


def _places(variables: list[Declaration]) -> tuple[dict[str, int], int]:
    """Variables without a size, which the launch decides, lie behind all others."""
    sized = [one for one in variables if "extern" not in "".join(one.linkage)]
    offsets, end = layout(tuple(sized))
    end = -(-end // 128) * 128
    for one in variables:
        for declarator in one.declarators:
            offsets.setdefault(declarator.name, end)
    return offsets, end


class _Linker:
    def __init__(self, module: Module) -> None:
        self._functions = {function.name: function for function in module.functions if function.body is not None}
        self._known = set(self._functions) | {
            declarator.name for item in module.items if isinstance(item, Declaration) for declarator in item.declarators
        }
        self._instructions: list[Instruction] = []
        self._targets: dict[str, int] = {}
        self._tables: dict[str, tuple[str, ...]] = {}
        self._variables: list[Declaration] = []
        self._copies = 0

    def link(self, entry: Function) -> Flow:
        self._add(flow_of(entry), lambda name: name, "")
        return Flow(tuple(self._instructions), self._targets, self._tables, tuple(self._variables), ())

    def _add(self, flow: Flow, new: Callable[[str], str], after: str) -> None:
        labels: dict[int, list[str]] = defaultdict(list)
        for label, at in flow.targets.items():
            labels[at].append(new(label))
        for table, targets in flow.tables.items():
            self._tables[new(table)] = tuple(map(new, targets))
        for variable in flow.variables:
            names = tuple(replace(one, name=new(one.name)) for one in variable.declarators)
            self._variables.append(replace(variable, declarators=names))
        for unknown in flow.unknown:
            raise UnsupportedInstruction(unknown.tokens[0], unknown.line)
        for at, original in enumerate(flow.instructions):
            self._place(labels[at])
            instruction = rename_in(original, new)
            if instruction.opcode == "call":
                self._call(instruction)
            elif instruction.opcode == "ret" and after:
                self._instructions.append(replace(instruction, opcode="bra", operands=(Name(after),)))
            else:
                self._instructions.append(instruction)
        self._place(labels[len(flow.instructions)])

    def _place(self, labels: list[str]) -> None:
        for label in labels:
            self._targets[label] = len(self._instructions)

    def _call(self, call: Instruction) -> None:
        names = [operand.text for operand in call.operands if isinstance(operand, Name)]
        callee = self._functions.get(names[0]) if names else None
        if callee is None:
            if names[:1] == ["vprintf"]:
                return
            raise UnsupportedInstruction(f"call of {names[0] if names else 'nothing'}", call.line)
        self._copies += 1
        suffix, after = f"#{self._copies}", f"#after{self._copies}"
        aliases = dict(zip(_declared(callee.results), _given(call.operands, before=True), strict=True))
        aliases |= dict(zip(_declared(callee.parameters), _given(call.operands, before=False), strict=True))

        def new(name: str) -> str:
            if name in aliases:
                return aliases[name]
            return name if name in self._known or name in SPECIAL else name + suffix

        if call.guard is not None:
            guard = Guard(call.guard.name, not call.guard.negated)
            self._instructions.append(Instruction("bra", (), (Name(after),), guard, call.line))
        self._add(flow_of(callee), new, after)
        self._place([after])


def _declared(declarations: tuple[Declaration, ...] | None) -> list[str]:
    found: list[Declarator] = [one for declaration in declarations or () for one in declaration.declarators]
    return [one.name for one in found]


def _given(operands: tuple[Operand, ...], *, before: bool) -> list[str]:
    """The results, which stand before the function's name, or the arguments, which stand behind it."""
    at = next(index for index, operand in enumerate(operands) if isinstance(operand, Name))
    groups = [operand for operand in (operands[:at] if before else operands[at:]) if isinstance(operand, Group)]
    return [item.text for group in groups for item in group.items if isinstance(item, Name)]


SPECIAL = frozenset(
    {f"%{register}.{axis}" for register in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"}
    | {"%laneid", "%warpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge"}
)
