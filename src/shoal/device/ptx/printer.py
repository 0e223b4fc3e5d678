"""Writes a tree as PTX. To print what was parsed and parse it again gives the same tree."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.device.ptx.tree import (
    Address,
    Block,
    Declaration,
    Declarator,
    Directive,
    Function,
    Group,
    Instruction,
    Label,
    Module,
    Name,
    Negated,
    Number,
    Operand,
    Pair,
    Statement,
    Sum,
    Tokens,
    Unknown,
    Vector,
)


def print_module(module: Module) -> str:
    return "".join(f"{line}\n" for item in module.items for line in _item(item))


def _item(item: Function | Declaration | Directive | Unknown) -> Iterator[str]:
    if isinstance(item, Function):
        yield from _function(item)
    elif isinstance(item, Directive) and item.tokens[0] == ".section":
        # One value a line, as assemblers want it.
        yield " ".join(f"\n{token}" if token.startswith(".b") else token for token in item.tokens)
    else:
        yield from _statement(item, "")


def _function(function: Function) -> Iterator[str]:
    head = [*function.linkage, ".entry" if function.entry else ".func", *function.attributes]
    if function.results is not None:
        head.append(f"({', '.join(map(_declaration, function.results))})")
    head.append(function.name)
    if function.parameters is None:
        yield " ".join(head)
    else:
        yield " ".join(head) + "("
        yield ",\n".join(f"\t{_declaration(parameter)}" for parameter in function.parameters)
        yield ")"
    for directive in function.directives:
        yield " ".join(directive)
    if function.body is None:
        yield ";"
    else:
        yield "{"
        for statement in function.body:
            yield from _statement(statement, "\t")
        yield "}"


def _statement(statement: Statement, indent: str) -> Iterator[str]:
    match statement:
        case Instruction():
            yield f"{indent}{_instruction(statement)};"
        case Label(name):
            yield f"{name}:"
        case Declaration():
            yield f"{indent}{_declaration(statement)};"
        case Directive(tokens) | Unknown(tokens):
            yield indent + " ".join(tokens)
        case Block(statements):
            yield f"{indent}{{"
            for inner in statements:
                yield from _statement(inner, indent + "\t")
            yield f"{indent}}}"


def _instruction(instruction: Instruction) -> str:
    words = [instruction.text]
    if instruction.guard is not None:
        words.insert(0, f"@{'!' if instruction.guard.negated else ''}{instruction.guard.name.text}")
    if instruction.operands:
        words.append(", ".join(map(_operand, instruction.operands)))
    return " ".join(words)


def _operand(operand: Operand) -> str:
    match operand:
        case Name(text) | Number(text):
            return text
        case Sum(base, offset):
            return f"{base.text}+{offset.text}"
        case Negated(name):
            return f"!{name.text}"
        case Pair(first, second):
            return f"{first.text}|{second.text}"
        case Vector(items):
            return f"{{{', '.join(map(_operand, items))}}}"
        case Address(items):
            return f"[{', '.join(map(_operand, items))}]"
        case Group(items):
            return f"({', '.join(map(_operand, items))})"


def _declaration(declaration: Declaration) -> str:
    words: Tokens = (*declaration.linkage, f".{declaration.space}", *declaration.specifiers)
    return f"{' '.join(words)} {', '.join(map(_declarator, declaration.declarators))}"


def _declarator(declarator: Declarator) -> str:
    count = "" if declarator.count is None else f"<{declarator.count}>"
    dimensions = "".join(f"[{dimension}]" for dimension in declarator.dimensions)
    initial = f" = {' '.join(declarator.initial)}" if declarator.initial else ""
    return f"{declarator.name}{count}{dimensions}{initial}"
