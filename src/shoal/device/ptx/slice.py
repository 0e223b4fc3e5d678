"""`slice`: a launch runs a range of the original blocks."""

from __future__ import annotations

from shoal.device.ptx.tree import Function
from shoal.device.ptx.variant import FROM_NUMBER, REGISTERS, statements, variant

SUFFIX = "__shoal_slice"

PROLOGUE = statements(
    REGISTERS
    + """
    ld.param.u32 %shoal_number, [__shoal_launch+12];
    mov.u32 %shoal_rest, %ctaid.x;
    add.u32 %shoal_number, %shoal_number, %shoal_rest;
"""
    + FROM_NUMBER
)


def sliced(entry: Function) -> Function:
    return variant(entry, entry.name + SUFFIX, PROLOGUE)
