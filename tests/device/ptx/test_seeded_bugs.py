"""Each defect put into the transformation on purpose is noticed by the comparison with the original."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from shoal.device.ptx import slice as slice_
from shoal.device.ptx import ticket
from shoal.device.ptx.flow import rename_in
from shoal.device.ptx.launch import blocks_in
from shoal.device.ptx.printer import print_module
from shoal.device.ptx.tree import Function, Guard, Instruction, Module, Number, Operand, Statement, Sum
from shoal.device.ptx.variant import variant
from tests.device.ptx.program import InterpreterError
from tests.device.ptx.scenarios import SCENARIOS, Run, Scenario, original

Body = tuple[Statement, ...]
Make = Callable[[Function], Function]

MODES = {"slice": (slice_.SUFFIX, slice_.PROLOGUE), "ticket": (ticket.SUFFIX, ticket.PROLOGUE)}
TRIED = [
    next(one for one in SCENARIOS if one.entry == entry)
    for entry in ("three_dimensions", "saxpy", "block_sum", "dynamic_shared")
]


def noticed(mode: str, make: Make) -> bool:
    """Whether any of a few scenarios tells the variant from the original."""
    try:
        return not all(_holds(mode, make, scenario) for scenario in TRIED)
    except InterpreterError:
        return True


def _holds(mode: str, make: Make, scenario: Scenario) -> bool:
    module = original(scenario.file)
    (entry,) = [one for one in module.entries if one.name == scenario.entry]
    changed = Module((*module.items, make(entry)))
    expected = Run(scenario, module).whole().result
    blocks = blocks_in(scenario.grid)
    if mode == "slice":
        return all(Run(scenario, changed).sliced(size).result == expected for size in (2, blocks))
    for stop in (blocks, 0, 1, blocks - 1):
        run = Run(scenario, changed)
        run.stop_before(stop)
        if run.claimed != stop:
            return False
        run.ticketed()
        if run.result != expected or run.claimed != blocks or any(run.beyond):
            return False
    run = Run(scenario, changed)
    run.stop_before(None, too_many=2)
    if run.result != expected:
        return False
    for seed in range(4):
        run = Run(scenario, changed).ticketed((seed,), random=Random(seed), resident=3)
        if run.result != expected or run.claimed != blocks:
            return False
    return True


def with_prologue(mode: str, prologue: Body) -> Make:
    return lambda entry: variant(entry, entry.name + MODES[mode][0], prologue)


def changes(statement: Instruction) -> Iterator[tuple[str, list[Instruction]]]:
    """What might have been written by mistake instead."""
    yield "is missing", []
    others = {"rem": "div", "div": "rem", "add": "sub", "or": "and", "mul": "add"}
    if (other := others.get(statement.opcode)) is not None:
        yield f"is {other}", [replace(statement, opcode=other, modifiers=statement.modifiers[-1:])]
    for index, word in enumerate(statement.modifiers):
        if (new := {"ne": "eq", "ge": "gt"}.get(word)) is not None:
            modifiers = (*statement.modifiers[:index], new, *statement.modifiers[index + 1 :])
            yield f"has {new}", [replace(statement, modifiers=modifiers)]
    if statement.guard is not None:
        guard = Guard(statement.guard.name, not statement.guard.negated)
        yield "is turned round", [replace(statement, guard=guard)]
        yield "is not guarded", [replace(statement, guard=None)]
    for index, operand in enumerate(statement.operands):
        for new_operand in _other(operand):
            operands = (*statement.operands[:index], new_operand, *statement.operands[index + 1 :])
            yield f"has another operand {index}", [replace(statement, operands=operands)]


def _other(operand: Operand) -> Iterator[Operand]:
    match operand:
        case Number(text):
            yield Number(str(int(text, 0) % 2**31 + 1))
        case Sum(base, Number(text)):
            yield Sum(base, Number(str(int(text) + 4)))
        case _ if hasattr(operand, "items"):
            for inner in operand.items:
                for new in _other(inner):
                    yield type(operand)((new,))


def mutants(mode: str) -> Iterator[tuple[str, Body]]:
    prologue = MODES[mode][1]
    for index, statement in enumerate(prologue):
        if isinstance(statement, Instruction):
            for how, instead in changes(statement):
                one = Function("k", True, (), (statement,))
                text = print_module(Module((one,))).splitlines()[-2].strip()
                yield f"{mode}: {text} {how}", (*prologue[:index], *instead, *prologue[index + 1 :])


MUTANTS = [(name, name.split(":")[0], body) for mode in MODES for name, body in mutants(mode)]

THE_SAME = {
    "cvta.to.global.u64": "an address in device memory is the same in both spaces",
    "bar.sync 0; has another operand": "any barrier would do: the kernel has met none yet",
    "0xFFFFFFFF; has another operand": "any number behind the grid would do",
}


@pytest.mark.few(count=20)
@pytest.mark.parametrize(("name", "mode", "body"), MUTANTS, ids=[name for name, _, _ in MUTANTS])
def test_a_mistake_in_the_prologue_is_noticed(name: str, mode: str, body: Body) -> None:
    expected = not any(part in name for part in THE_SAME)
    assert noticed(mode, with_prologue(mode, body)) == expected


@pytest.mark.parametrize("mode", MODES)
def test_no_mistake_is_noticed_where_there_is_none(mode: str) -> None:
    assert not noticed(mode, with_prologue(mode, MODES[mode][1]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axis", "xyz")
@pytest.mark.parametrize(("own", "special"), [("block", "ctaid"), ("grid", "nctaid")])
def test_a_register_that_was_not_replaced_is_noticed(mode: str, axis: str, own: str, special: str) -> None:
    suffix, prologue = MODES[mode]

    def make(entry: Function) -> Function:
        made = variant(entry, entry.name + suffix, prologue)
        forgotten = {f"%shoal_{own}_{axis}": f"%{special}.{axis}"}
        rest = [
            rename_in(one, lambda name: forgotten.get(name, name)) if isinstance(one, Instruction) else one
            for one in (made.body or ())[len(prologue) :]
        ]
        return replace(made, body=(*prologue, *rest))

    assert noticed(mode, make)
