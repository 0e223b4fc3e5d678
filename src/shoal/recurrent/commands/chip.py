"""`shoal recurrent chip`: the paper's chips, in cycles."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext
from shoal.core import Invalid
from shoal.recurrent.chip.models import OPERATIONS, TABLE, Brainwave, Plasticine


def chip(
    context: CommandContext,
    cell: Annotated[str, typer.Option("--cell", help="lstm or gru.")] = "lstm",
    hidden: Annotated[int | None, typer.Option("--hidden", min=1, max=65536, help="Hidden units.")] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Time steps.")] = 25,
) -> None:
    """Simulate the chips of the paper: the mapping that the search finds, cycles, and speed-ups. Without --hidden, the
    paper's table beside the printed latencies."""
    if hidden is None:
        rows = [_row(one.cell, one.hidden, one.steps) | {"printed": asdict(one)} for one in TABLE]
    elif cell in OPERATIONS:
        rows = [_row(cell, hidden, steps)]
    else:
        raise Invalid(f"{cell!r} is no cell of the paper", where="--cell", hint=f"one of {', '.join(OPERATIONS)}")
    context.show({"simulated": True, "rows": rows}, lambda: _print(rows))


def _row(cell: str, hidden: int, steps: int) -> dict[str, Any]:
    plasticine, brainwave = Plasticine(), Brainwave()
    shape = plasticine.best(cell, hidden)
    seconds = plasticine.seconds(cell, hidden, steps, shape)
    other = brainwave.seconds(cell, hidden, steps)
    return {
        "cell": cell, "hidden": hidden, "steps": steps, "hu": shape.units, "ru": shape.unroll, "rv": plasticine.vector,
        "compute_units": plasticine.compute_needed(cell, shape),
        "cycles_per_step": plasticine.cycles(cell, hidden, shape), "plasticine_ms": seconds * 1e3,
        "brainwave_ms": other * 1e3, "speedup_over_brainwave": other / seconds,
        "teraflops": OPERATIONS[cell] * hidden * hidden * steps / seconds / 1e12,
    }  # fmt: skip


def _print(rows: list[dict[str, Any]]) -> None:
    from shoal.base.console.output import put, table

    heads = ["cell", "hidden", "steps", "hu x ru", "cycles a step", "Plasticine", "printed", "error", "Brainwave",
             "printed", "speed-up", "TFLOPS"]  # fmt: skip
    cells = []
    for row in rows:
        printed = row.get("printed")
        cells.append([
            row["cell"], row["hidden"], row["steps"], f"{row['hu']} x {row['ru']}", row["cycles_per_step"],
            f"{row['plasticine_ms']:.4f} ms", f"{printed['plasticine_ms']:.4f}" if printed else "",
            f"{row['plasticine_ms'] / printed['plasticine_ms'] - 1:+.1%}" if printed else "",
            f"{row['brainwave_ms']:.3f} ms", f"{printed['brainwave_ms']:.3f}" if printed else "",
            f"{row['speedup_over_brainwave']:.1f}x", f"{row['teraflops']:.1f}",
        ])  # fmt: skip
    put(table(heads, cells))
    print("simulated in cycles; no such chip was at hand")
