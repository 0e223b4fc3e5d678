"""A copy of an entry that takes its block's number from a prologue instead of from the hardware."""

from __future__ import annotations

from dataclasses import replace

from shoal.device.ptx.flow import rename_in, used_labels
from shoal.device.ptx.launch import LAUNCH_ALIGN, LAUNCH_BYTES
from shoal.device.ptx.parser import parse
from shoal.device.ptx.tree import Block, Declaration, Declarator, Directive, Function, Instruction, Label, Statement

LAUNCH = "__shoal_launch"
"""The name of the extra parameter."""

_REPLACED = {
    f"%{special}.{axis}": f"%shoal_{own}_{axis}"
    for special, own in (("ctaid", "block"), ("nctaid", "grid"))
    for axis in "xyz"
}

REGISTERS = """
    .reg .b32 %shoal_grid_x, %shoal_grid_y, %shoal_grid_z, %shoal_block_x, %shoal_block_y, %shoal_block_z;
    .reg .b32 %shoal_number, %shoal_rest;
    ld.param.u32 %shoal_grid_x, [__shoal_launch];
    ld.param.u32 %shoal_grid_y, [__shoal_launch+4];
    ld.param.u32 %shoal_grid_z, [__shoal_launch+8];
"""

FROM_NUMBER = """
    rem.u32 %shoal_block_x, %shoal_number, %shoal_grid_x;
    div.u32 %shoal_rest, %shoal_number, %shoal_grid_x;
    rem.u32 %shoal_block_y, %shoal_rest, %shoal_grid_y;
    div.u32 %shoal_block_z, %shoal_rest, %shoal_grid_y;
"""


def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a body."""
    return parse(f".entry prologue {{ {text} }}").functions[0].body or ()


def variant(entry: Function, name: str, prologue: tuple[Statement, ...]) -> Function:
    extra = Declaration(
        "param", (".align", str(LAUNCH_ALIGN), ".b8"), (Declarator(LAUNCH, dimensions=(str(LAUNCH_BYTES),)),)
    )
    body = _rewritten(entry.body or (), used_labels(entry))
    return replace(entry, name=name, parameters=(*(entry.parameters or ()), extra), body=(*prologue, *body))


def _rewritten(body: tuple[Statement, ...], labels: frozenset[str]) -> tuple[Statement, ...]:
    """Block number and grid size from the prologue's registers. Lines and labels that only a debugger wants stay with
    the original: the debugging sections name each label once."""
    found: list[Statement] = []
    for statement in body:
        match statement:
            case Instruction():
                found.append(rename_in(statement, lambda name: _REPLACED.get(name, name)))
            case Block(inner):
                found.append(Block(_rewritten(inner, labels)))
            case Directive((".loc", *_)):
                pass
            case Label(name) if name not in labels:
                pass
            case _:
                found.append(statement)
    return tuple(found)
