"""Reads PTX: what nvcc writes, what cuobjdump extracts, and what Triton and people write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from shoal.device.ptx.tree import (
    Address,
    Block,
    Declaration,
    Declarator,
    Directive,
    Function,
    Group,
    Guard,
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


class PtxSyntaxError(ValueError):
    """The text is no PTX; `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


class Token(NamedTuple):
    text: str
    line: int


_TOKEN = re.compile(
    r"""
      (?:[ \t\r\f\v]+ | //[^\n]*)*
      (?:
      (?P<newline>\n+)
    | (?P<comment>/\*.*?\*/)
    | (?P<end>\Z)
    | (?P<token>
          "(?:[^"\\\n]|\\.)*"
        | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+(?![\w$])
        | \.?[\w$%]+(?:(?:\.|::)[\w$%]+)*
        | << | >> | <= | >= | == | != | && | \|\|
        | [{}()\[\]<>,;:@!|+\-*=&^~?] | /(?!\*)
      ))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

SPACES = frozenset({".reg", ".sreg", ".const", ".global", ".local", ".param", ".shared", ".tex"})
LINKAGE = frozenset({".extern", ".visible", ".weak", ".common"})
_OPEN = {"{": "}", "(": ")", "[": "]"}
_BLANK = re.compile(r"(?:[ \t\r\f\v]+|//[^\n]*)*")


def lex(text: str) -> list[Token]:
    tokens, position, line = [], 0, 1
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        kind = match.lastgroup
        if kind == "token":
            tokens.append(Token(match["token"], line))
        elif kind != "end":
            line += match[0].count("\n")
    if position < len(text):
        blank = _BLANK.match(text, position)
        position = blank.end() if blank is not None else position
        shown = "a comment" if text.startswith("/*", position) else "a string" if text[position] == '"' else ""
        raise PtxSyntaxError(line, f"{shown} has no end" if shown else f"unexpected character {text[position]!r}")
    return tokens


def parse(text: str) -> Module:
    """The module's tree; PtxSyntaxError where there is none."""
    return _Parser(lex(text)).module()


class _NotUnderstood(Exception):
    """The statement has a form that the tree does not have."""


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._texts = [*(token.text for token in tokens), "", ""]  # one looks ahead by one at most
        self._at = 0

    # Tokens

    def _peek(self, ahead: int = 0) -> str:
        return self._texts[self._at + ahead]

    @property
    def _line(self) -> int:
        return self._tokens[min(self._at, len(self._tokens) - 1)].line if self._tokens else 1

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise PtxSyntaxError(self._line, "the text ends in the middle of a statement")
        self._at += 1
        return self._texts[self._at - 1]

    def _take(self, text: str) -> bool:
        if self._texts[self._at] != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _NotUnderstood

    def _word(self) -> str:
        if not _is_word(self._peek()):
            raise _NotUnderstood
        return self._next()

    def _balanced(self) -> Tokens:
        """An opening bracket and all up to the one that closes it."""
        line, start, open_ = self._line, self._at, [_OPEN[self._next()]]
        while open_:
            if self._at == len(self._tokens):
                raise PtxSyntaxError(line, f"{self._tokens[start].text!r} is never closed")
            text = self._next()
            if text in _OPEN:
                open_.append(_OPEN[text])
            elif text in _OPEN.values() and text != open_.pop():
                raise PtxSyntaxError(self._tokens[self._at - 1].line, f"{text!r} closes nothing")
        return tuple(self._texts[start : self._at])

    def _to_semicolon(self) -> Tokens:
        found: list[str] = []
        line = self._line
        while not self._take(";"):
            if self._at == len(self._tokens) or self._peek() in _OPEN.values():
                raise PtxSyntaxError(line, "a statement without ';' at its end")
            found += self._balanced() if self._peek() in _OPEN else (self._next(),)
        return tuple(found)

    def _separated(self, one: Callable[[], Operand], close: str) -> tuple[Operand, ...]:
        items: list[Operand] = []
        while not self._take(close):
            if items:
                self._expect(",")
            items.append(one())
        return tuple(items)

    # The module

    def module(self) -> Module:
        items: list[Function | Declaration | Directive | Unknown] = []
        while self._at < len(self._tokens):
            items.append(self._item())
        return Module(tuple(items))

    def _item(self) -> Function | Declaration | Directive | Unknown:
        start, line, word = self._at, self._line, self._peek()
        if (directive := self._directive()) is not None:
            return directive
        if not word.startswith("."):
            raise PtxSyntaxError(line, f"{word!r} stands outside every function")
        linkage = self._linkage()
        if self._peek() in (".entry", ".func"):
            return self._function(linkage)
        try:
            declaration = self._declaration(linkage)
            self._expect(";")
            return declaration
        except _NotUnderstood:
            self._at = start
        tokens: list[str] = []
        while not tokens or tokens[-1] not in (";", "}"):
            tokens += self._balanced() if self._peek() in _OPEN else (self._next(),)
        return Unknown(tuple(tokens), line)

    def _directive(self) -> Directive | None:
        """Directives have no common end: some have a semicolon, some a fixed number of words."""
        line, start = self._line, self._at
        match self._peek():
            case ".version" | ".address_size":
                self._at += 1
                self._next()
            case ".target":
                self._at += 1
                self._next()
                while self._take(","):
                    self._next()
            case ".file":
                self._at += 1
                self._next(), self._next()
                while self._take(","):
                    self._next()
            case ".loc":
                self._at += 1
                self._next(), self._next(), self._next()
                while self._take(","):
                    word = self._next()
                    if word == "function_name":
                        self._next()
                        if self._take("+"):
                            self._next()
                    elif word == "inlined_at":
                        self._next(), self._next(), self._next()
                    else:
                        raise PtxSyntaxError(line, f".loc with {word!r}")
            case ".section":
                self._at += 1
                self._next()
                if self._peek() != "{":
                    raise PtxSyntaxError(line, ".section without braces")
                self._balanced()
            case ".pragma" | ".alias" | ".branchtargets" | ".calltargets" | ".callprototype":
                self._to_semicolon()
            case _:
                return None
        return Directive(tuple(self._texts[start : self._at]), line)

    def _linkage(self) -> Tokens:
        found = []
        while self._peek() in LINKAGE:
            found.append(self._next())
        return tuple(found)

    def _function(self, linkage: Tokens) -> Function:
        line = self._line
        try:
            entry = self._next() == ".entry"
            attributes: Tokens = ()
            while self._peek() == ".attribute":
                attributes += (self._next(), *self._balanced())
            results = self._parameters() if not entry and self._peek() == "(" else None
            name = self._word()
            parameters = self._parameters() if self._peek() == "(" else None
            directives: list[Tokens] = []
            while self._peek() not in ("{", ";"):
                directives.append(self._function_directive())
        except _NotUnderstood:
            shown = f"{self._peek()!r}" if self._peek() else "the text's end"
            raise PtxSyntaxError(self._line, f"{shown} in the head of a function") from None
        body = None if self._take(";") else self._body()
        return Function(name, entry, parameters, body, results, linkage, attributes, tuple(directives), line)

    def _parameters(self) -> tuple[Declaration, ...]:
        self._expect("(")
        found: list[Declaration] = []
        while not self._take(")"):
            if found:
                self._expect(",")
            found.append(self._declaration((), single=True))
        return tuple(found)

    def _function_directive(self) -> Tokens:
        if not self._peek().startswith("."):
            raise _NotUnderstood
        if self._peek() == ".pragma":
            return (*self._to_semicolon(), ";")
        words = [self._next()]
        while self._peek() not in ("{", ";", "") and not self._peek().startswith("."):
            words += self._balanced() if self._peek() in _OPEN else (self._next(),)
        return tuple(words)

    # Statements

    def _body(self) -> tuple[Statement, ...]:
        line, found = self._line, []
        self._expect("{")
        while not self._take("}"):
            if self._at == len(self._tokens):
                raise PtxSyntaxError(line, "'{' is never closed")
            if not self._take(";"):  # an empty statement
                found.append(self._statement())
        return tuple(found)

    def _statement(self) -> Statement:
        line, start, word = self._line, self._at, self._peek()
        if word == "{":
            return Block(self._body())
        if _is_word(word) and not word.startswith(".") and self._peek(1) == ":":
            self._at += 2
            return Label(word, line)
        if (directive := self._directive()) is not None:
            return directive
        try:
            declares = word in SPACES or word in LINKAGE
            statement = self._declaration(self._linkage()) if declares else self._instruction()
            self._expect(";")
            return statement
        except _NotUnderstood:
            self._at = start
            return Unknown((*self._to_semicolon(), ";"), line)

    def _declaration(self, linkage: Tokens, *, single: bool = False) -> Declaration:
        line, space = self._line, self._peek()
        if space not in SPACES:
            raise _NotUnderstood
        self._at += 1
        specifiers: list[str] = []
        while self._peek().startswith("."):
            word = self._next()
            specifiers.append(word)
            if word == ".align":
                specifiers.append(self._word())
            elif self._peek() == "(":
                specifiers += self._balanced()
        declarators = [self._declarator()]
        while not single and self._take(","):
            declarators.append(self._declarator())
        return Declaration(space[1:], tuple(specifiers), tuple(declarators), linkage, line)

    def _declarator(self) -> Declarator:
        name, count, dimensions = self._word(), None, []
        if self._take("<"):
            count = int(self._word(), 0)
            self._expect(">")
        while self._take("["):
            dimensions.append("" if self._peek() == "]" else self._word())
            self._expect("]")
        initial: list[str] = []
        if self._take("="):
            while self._peek() not in (",", ";", ""):
                initial += self._balanced() if self._peek() in _OPEN else (self._next(),)
        return Declarator(name, count, tuple(dimensions), tuple(initial))

    def _instruction(self) -> Instruction:
        line, guard = self._line, None
        if self._take("@"):
            negated = self._take("!")
            guard = Guard(Name(self._word()), negated)
        opcode, *modifiers = self._word().split(".")
        if not opcode or not opcode[0].isalpha():
            raise _NotUnderstood
        operands: list[Operand] = []
        while self._peek() != ";":
            if operands:
                self._expect(",")
            operands.append(self._operand())
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard, line)

    def _operand(self) -> Operand:
        if self._take("{"):
            return Vector(self._separated(self._operand, "}"))
        if self._take("("):
            return Group(self._separated(self._operand, ")"))
        if self._take("["):
            return Address(self._separated(self._operand, "]"))
        if self._take("!"):
            return Negated(Name(self._word()))
        value = self._value()
        if isinstance(value, Name):
            if self._take("|"):
                return Pair(value, Name(self._word()))
            if self._peek() in ("+", "-"):
                self._take("+")  # a minus belongs to the number
                return Sum(value, self._value())
        return value

    def _value(self) -> Name | Number:
        sign = self._next() if self._peek() in ("-", "~", "+") else ""
        word = self._word()
        if word[0].isdigit():
            return Number(sign.lstrip("+") + word)
        if sign:
            raise _NotUnderstood
        return Name(word)


def _is_word(text: str) -> bool:
    return bool(text) and (text[0].isalnum() or text[0] in "_$%.")
