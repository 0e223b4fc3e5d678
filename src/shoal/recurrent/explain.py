"""Explanation of an artefact, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.recurrent.layers.layer import LayerSpec
from shoal.recurrent.llvm.cache import user_cache
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.nest.ir import show
from shoal.recurrent.nest.transform import Schedule, lower
from shoal.recurrent.network.artefact import Artefact, Tuning, layers_of, read
from shoal.recurrent.network.graph import Recurrence
from shoal.recurrent.search.model import cost_of, roofline_s


def describe(path: Path, target: Target, *, nests: bool = False) -> dict[str, Any]:
    """Everything as JSON can hold it. Raises BadNetwork."""
    found = read(path)
    streams = all(step.streams for step in found.graph.recurrences)
    streams = streams and not any(part.restarts for part in found.graph.segments)
    tunings = iter(found.tunings)
    steps: list[dict[str, Any]] = []
    for step in found.graph.steps:
        if isinstance(step, Recurrence):
            steps.append(
                {"recurrent": step.name, "layers": [_layer(one, next(tunings), target, nests) for one in step.layers]}
            )
        else:
            steps.append({"segment": list(step.operators)})
    return {
        "artefact": str(path), "facts": dict(found.facts), "target": target.name,
        "sessions": streams, "states": dict(found.graph.pairs),
        "steps": steps, "remarks": list(found.graph.remarks), "parameters": _parameters(found),
    }  # fmt: skip


def _parameters(found: Artefact) -> int:
    return sum(layer.weights.count for layer in layers_of(found.graph))


def _layer(spec: LayerSpec, tuning: Tuning, target: Target, nests: bool) -> dict[str, Any]:
    from shoal.recurrent.search.machine import measured

    cost = cost_of(spec, target)
    made: dict[str, Any] = {
        "cell": spec.cell.name, "direction": "backward" if spec.reverse else "forward", "type": spec.kind,
        "input": spec.sizes.input, "hidden": spec.sizes.hidden, "projection": spec.sizes.projection,
        "recurrent_bytes": cost.recurrent_bytes, "input_bytes": cost.input_bytes,
        "operations_per_step": cost.recurrent_ops + cost.input_ops,
        "sequence": tuning.schedules.sequence.as_json(), "step": tuning.schedules.step.as_json(),
    }  # fmt: skip
    sequences = [one for one in tuning.tried if one["steps"] > 1]
    if sequences:
        best = sequences[0]
        least = roofline_s(spec, target, measured(target, user_cache().folder), best["steps"])
        made |= {
            "sequence_steps": best["steps"], "predicted_s": best["predicted_s"], "measured_s": best["measured_s"],
            "roofline_share": least / best["measured_s"],
        }  # fmt: skip
    if nests:
        made["tried"] = [dict(one) for one in tuning.tried]
        made["nest"] = {
            name: show(lower(spec.cell, spec.sizes, schedule, target.lanes)).splitlines()
            for name, schedule in (("sequence", tuning.schedules.sequence), ("step", tuning.schedules.step))
        }
    return made


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The same for people."""
    from shoal.base.console.output import size

    facts = found["facts"]
    error = facts.get("error", {})
    source = facts.get("source", "a file")
    yield f"{found['artefact']}: from {source}, {found['parameters']:,} parameters, for {found['target']}"
    if error:
        yield f"error against fp32: {error['relative_rms']:.1e} (on {error['measured_on']})"
    if "threads" in facts:
        times = ", ".join(f"{count}: {seconds * 1e3:.2f} ms" for count, seconds in facts["threads_tried"].items())
        yield f"threads: {facts['threads']} (tried {times})"
    yield f"sessions: {'yes' if found['sessions'] else 'no'}" + "".join(
        f", {first} becomes {last}" for first, last in found["states"].items()
    )
    for step in found["steps"]:
        if "segment" in step:
            runs = "compiled too" if found["facts"].get("program") else "ONNX Runtime"
            yield f"{runs}: {', '.join(step['segment'])}"
            continue
        for layer in step["layers"]:
            yield (
                f"{step['recurrent']}: {layer['cell']} {layer['input']} to {layer['hidden']}, {layer['type']}, "
                f"{layer['direction']}; a step reads {size(layer['recurrent_bytes'])} and does "
                f"{layer['operations_per_step'] / 1e6:.2f} million operations"
            )
            yield from _layer_lines(layer)
    yield from found["remarks"]


def _layer_lines(layer: dict[str, Any]) -> Iterator[str]:
    for name in ("sequence", "step"):
        yield f"  {name}: {_schedule(layer[name])}"
    if "measured_s" in layer:
        yield (
            f"  {layer['sequence_steps']} steps: predicted {layer['predicted_s'] * 1e3:.3f} ms, "
            f"measured {layer['measured_s'] * 1e3:.3f} ms, {layer['roofline_share']:.0%} of the roofline"
        )
    for name, nest in layer.get("nest", {}).items():
        yield f"  loop nest of the {name}:"
        yield from (f"    {line}" for line in nest)
    if layer.get("tried"):
        yield "  tried, by measured time:"
        for one in layer["tried"]:
            yield (
                f"    {one['steps']} steps, {one['rows']} rows: predicted {one['predicted_s'] * 1e6:.0f} us, measured "
                f"{one['measured_s'] * 1e6:.0f} us; {_schedule(one['schedule'])}"
            )


def _schedule(data: dict[str, Any]) -> str:
    one = Schedule(**data)
    hoisted = f"input hoisted in tiles of {one.steps}" if one.hoist else "input in the loop"
    order = ", alternating" if one.alternate else ""
    gates = f", {one.gates} gates at once" if one.gates else ""
    return f"hu {one.units}, rows {one.rows}{gates}, ru {one.unroll}, {hoisted}{order}"
