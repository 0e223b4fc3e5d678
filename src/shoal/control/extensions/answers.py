"""The registry of questions: which extension answers which, and what the server does with an answer that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import structlog

from shoal.base.loops import Defects
from shoal.extension import Extension

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger("shoal.extensions")


class Answers:
    """Objects by the protocol of the question, in the order of the extensions' names."""

    def __init__(self, extensions: Iterable[Extension]) -> None:
        self._defects = Defects(log)
        self._by_question: dict[type, tuple[Any, ...]] = {}
        for one in extensions:
            for question, answer in (self.given(one.answers, Extension) or {}).items():
                self._by_question[question] = (*self.to(question), answer)

    def to(self, question: type[T]) -> Sequence[T]:
        """All that answer it."""
        return self._by_question.get(question, ())

    def first(self, question: type[T], ask: Callable[[T], R | None]) -> R | None:
        """The first answer that is not None. One that raises is none, and logged once."""
        for one in self.to(question):
            if (found := self.given(lambda one=one: ask(one), question)) is not None:  # type: ignore[misc]
                return found
        return None

    def given(self, answer: Callable[[], R], question: type) -> R | None:
        """The answer; None where it raises."""
        try:
            return answer()
        except Exception as error:  # of an extension of others, too: it must cost no job
            self._defects.note("an extension's answer failed", error, question=question.__name__)
            return None
