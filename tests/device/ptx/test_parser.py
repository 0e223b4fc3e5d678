"""The parser reads all of the corpus, loses nothing, and names the line of what is no PTX."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.device.ptx.parser import PtxSyntaxError, lex, parse
from shoal.device.ptx.printer import print_module
from shoal.device.ptx.tree import (
    Block,
    Declaration,
    Directive,
    Instruction,
    Label,
    Unknown,
    layout,
    statements_in,
)
from tests.device.ptx.scenarios import CORPUS

FILES = sorted(path.name for path in CORPUS.glob("*.ptx"))


def body(text: str) -> tuple[object, ...]:
    (entry,) = parse(f".entry k() {{ {text} }}").entries
    assert entry.body is not None
    return entry.body


@pytest.mark.parametrize("file", FILES)
def test_printing_what_was_parsed_is_a_fixed_point(file: str) -> None:
    module = parse((CORPUS / file).read_text())
    printed = print_module(module)
    assert parse(printed) == module
    assert print_module(parse(printed)) == printed


@pytest.mark.parametrize("file", FILES)
def test_every_statement_of_the_corpus_is_understood(file: str) -> None:
    module = parse((CORPUS / file).read_text())
    assert module.entries
    statements = [one for function in module.functions for one in statements_in(function.body or ())]
    assert [one for one in (*module.items, *statements) if isinstance(one, Unknown)] == []


def test_spacing_does_not_matter() -> None:
    """nvcc's own text and what cuobjdump extracts differ in blanks, in comments and where a line ends."""
    source, extracted = (parse((CORPUS / f"{name}_sm80.ptx").read_text()) for name in ("nvcc", "cuobjdump"))
    assert source == extracted


def test_words_survive_printing_in_order() -> None:
    for file in ("nvcc_sm100.ptx", "triton_wgmma.ptx"):
        text = (CORPUS / file).read_text()
        printed = [token.text for token in lex(print_module(parse(text)))]
        assert printed == [token.text for token in lex(text)]


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("add.s32\t%r1,%r2 , -4;", "add.s32 %r1, %r2, -4;"),
        ("@!%p1 bra\t$L_1;", "@!%p1 bra $L_1;"),
        ("setp.lt.and.f32 %p1|%p2, %f1, 0f3F800000, !%p3;", "setp.lt.and.f32 %p1|%p2, %f1, 0f3F800000, !%p3;"),
        ("ld.global.v2.b32 { %r1,%r2 },[ %rd1 + 0 ];", "ld.global.v2.b32 {%r1, %r2}, [%rd1+0];"),
        ("st.shared::cta.u32 [box+-4], 0x1F;", "st.shared::cta.u32 [box+-4], 0x1F;"),
        ("st.u32 [box - 4], 1U;", "st.u32 [box+-4], 1U;"),
        ("mov.f64 %fd1, 1.5e-3;", "mov.f64 %fd1, 1.5e-3;"),
        ("mov.b32 %r1, ~1;", "mov.b32 %r1, ~1;"),
        ("call.uni (r0), f, (p0, p1), proto;", "call.uni (r0), f, (p0, p1), proto;"),
        ("ret;", "ret;"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r2, %r3}], [%r4];",
         "cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r2, %r3}], [%r4];"),
        (".reg .pred p, q;", ".reg .pred p, q;"),
        (".shared .align 16 .b8 s[4][2];", ".shared .align 16 .b8 s[4][2];"),
        (".loc 1 2 3, function_name $L + 4, inlined_at 1 5 6", ".loc 1 2 3 , function_name $L + 4 , inlined_at 1 5 6"),
        ('.pragma "nounroll";', '.pragma "nounroll" ;'),
        ("t: .branchtargets a, b;", "t:\n\t.branchtargets a , b ;"),
        ("p: .callprototype (.param .b32 _) _ (.param .b64 _);",
         "p:\n\t.callprototype ( .param .b32 _ ) _ ( .param .b64 _ ) ;"),
        ("{ { ret; } }", "{\n\t\t{\n\t\t\tret;\n\t\t}\n\t}"),
        ("/* a; // b */ ret; // c\n", "ret;"),
        ("add.s32 %r1 ? %r2;", "add.s32 %r1 ? %r2 ;"),
    ],
)  # fmt: skip
def test_statements(written: str, printed: str) -> None:
    text = print_module(parse(f".entry k() {{ {written} }}"))
    inner = text.split("{\n", 1)[1].rsplit("\n}", 1)[0].strip()
    assert inner == printed
    assert print_module(parse(text)) == text


def test_what_is_not_known_is_kept_word_by_word() -> None:
    statement, after = body("frobnicate %r1 <- [{%r2; }]; ret;")
    assert isinstance(statement, Unknown)
    assert " ".join(statement.tokens) == "frobnicate %r1 < - [ { %r2 ; } ] ;"
    assert isinstance(after, Instruction)
    (item,) = parse(".novelty { a; b; }").items
    assert item == Unknown((".novelty", "{", "a", ";", "b", ";", "}"))


def test_the_parts_of_statements() -> None:
    block, label, directive, declaration = body('{ @!p ld.volatile.u32 a, [b]; } l: .pragma "x"; .param .b64 c[2], d;')
    assert isinstance(block, Block)
    (load,) = block.statements
    assert isinstance(load, Instruction)
    assert (load.opcode, load.modifiers, load.guard is not None and load.guard.negated) == (
        "ld", ("volatile", "u32"), True,
    )  # fmt: skip
    assert list(load.names) == ["p", "a", "b"]
    assert label == Label("l")
    assert isinstance(directive, Directive)
    assert isinstance(declaration, Declaration)
    assert (declaration.type, declaration.align_bytes) == ("b64", 8)
    assert [declaration.bytes_of(one) for one in declaration.declarators] == [16, 8]


def test_where_parameters_lie() -> None:
    (entry,) = parse("""
        .entry k(.param .u8 a, .param .align 8 .b8 b[3], .param .u64 .ptr .global .align 16 c, .param .f16 d,
                 .param .v2 .f32 e) { }
    """).entries
    assert layout(entry.parameters or ()) == ({"a": 0, "b": 8, "c": 16, "d": 24, "e": 32}, 40)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (".version 8.0\n.entry k() {\n ret;", 2, "never closed"),
        (".entry k() { ret; } }", 1, "outside every function"),
        ("\nadd.u32 a, b, c;", 2, "outside every function"),
        (".entry k() { ret }", 1, "without ';'"),
        (".entry k() {\n /* no end", 2, "a comment has no end"),
        ('.file 1 "no end\n', 1, "a string has no end"),
        (".entry k() { ret; \\ }", 1, "unexpected character"),
        (".entry ( ) { }", 1, "in the head of a function"),
        (".entry k(.param .u32 a .param .u32 b) { }", 1, "in the head of a function"),
        (".entry k() .maxntid", 1, "the text's end"),
        (".section .debug_str", 1, "without braces"),
        (".version", 1, "the text ends"),
        (".entry k() { .loc 1 2 3, elsewhere 4 }", 1, "elsewhere"),
        (".entry k() { mov.u32 [a}; }", 1, "closes nothing"),
    ],
)
def test_no_ptx(text: str, line: int, problem: str) -> None:
    with pytest.raises(PtxSyntaxError, match=problem.replace("(", r"\(")) as caught:
        parse(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")


@given(st.data())
def test_damaged_text_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    text = (CORPUS / "hand.ptx").read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.sampled_from(["", *'{};,([".% '])) + text[at + 1 :]
    with suppress(PtxSyntaxError):
        module = parse(text)
        assert parse(print_module(module)) == module
