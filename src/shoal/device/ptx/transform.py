"""Adds to a PTX module, for each entry that is safe to transform, its variants `slice` and `ticket`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.device.ptx import slice as slice_
from shoal.device.ptx import ticket
from shoal.device.ptx.parser import parse
from shoal.device.ptx.printer import print_module
from shoal.device.ptx.safety import Cause, Examination, Refusal
from shoal.device.ptx.tree import Function, Module

MODES = {"slice": (slice_.SUFFIX, slice_.sliced), "ticket": (ticket.SUFFIX, ticket.ticketed)}


@dataclass(frozen=True)
class Transformed:
    text: str
    """The original, unchanged, and the variants behind it."""
    variants: Mapping[str, Mapping[str, str | Refusal]]
    """For each entry and each mode the variant's name, or why there is none."""


def transform(text: str) -> Transformed:
    """PtxSyntaxError where the text is no PTX."""
    module = parse(text)
    taken = {function.name for function in module.functions}
    made: list[Function] = []
    variants: dict[str, Mapping[str, str | Refusal]] = {}
    examination = Examination(module)
    for entry in module.entries:
        if entry.name.endswith((slice_.SUFFIX, ticket.SUFFIX)):
            continue
        refusal = examination.refusal_of(entry)
        found: dict[str, str | Refusal] = {}
        for mode, (suffix, make) in MODES.items():
            name = entry.name + suffix
            if refusal is not None:
                found[mode] = refusal
            elif name in taken:
                found[mode] = Refusal(Cause.NAME_TAKEN, f"there is a {name} already", entry.line)
            else:
                found[mode] = name
                made.append(make(entry))
        variants[entry.name] = found
    return Transformed(f"{text}\n{print_module(Module(tuple(made)))}", variants)
