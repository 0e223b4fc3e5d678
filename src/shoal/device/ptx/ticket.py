"""`ticket`: each block claims the next number on entry, unless it is told to stop.

The first thread of a block claims for all and hands the number on through the block's slot in global memory: static
shared memory would move what the kernel has there. The barrier is the first thing that all threads of the block do, so
it meets none of the kernel's own. Claimed numbers are always a prefix of all numbers.
"""

from __future__ import annotations

from shoal.device.ptx.tree import Function
from shoal.device.ptx.variant import FROM_NUMBER, REGISTERS, statements, variant

SUFFIX = "__shoal_ticket"

PROLOGUE = statements(
    REGISTERS
    + """
    .reg .b32 %shoal_stop;
    .reg .b64 %shoal_control, %shoal_claim;
    .reg .pred %shoal_waits, %shoal_stops, %shoal_over;
    ld.param.u64 %shoal_control, [__shoal_launch+16];
    cvta.to.global.u64 %shoal_control, %shoal_control;
    mov.u32 %shoal_rest, %ctaid.x;
    mul.wide.u32 %shoal_claim, %shoal_rest, 4;
    add.u64 %shoal_claim, %shoal_control, %shoal_claim;
    mov.u32 %shoal_number, %tid.x;
    mov.u32 %shoal_rest, %tid.y;
    or.b32 %shoal_number, %shoal_number, %shoal_rest;
    mov.u32 %shoal_rest, %tid.z;
    or.b32 %shoal_number, %shoal_number, %shoal_rest;
    setp.ne.u32 %shoal_waits, %shoal_number, 0;
    @%shoal_waits bra $shoal_claimed;
    mov.u32 %shoal_number, 0xFFFFFFFF;
    ld.volatile.global.u32 %shoal_stop, [%shoal_control];
    setp.ne.u32 %shoal_stops, %shoal_stop, 0;
    @%shoal_stops bra $shoal_stopped;
    atom.global.add.u32 %shoal_number, [%shoal_control+4], 1;
$shoal_stopped:
    st.volatile.global.u32 [%shoal_claim+8], %shoal_number;
$shoal_claimed:
    bar.sync 0;
    ld.volatile.global.u32 %shoal_number, [%shoal_claim+8];
    mul.lo.u32 %shoal_rest, %shoal_grid_x, %shoal_grid_y;
    mul.lo.u32 %shoal_rest, %shoal_rest, %shoal_grid_z;
    setp.ge.u32 %shoal_over, %shoal_number, %shoal_rest;
    @%shoal_over ret;
"""
    + FROM_NUMBER
)


def ticketed(entry: Function) -> Function:
    return variant(entry, entry.name + SUFFIX, PROLOGUE)
