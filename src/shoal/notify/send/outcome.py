"""Outcome of one try of a delivery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error` is empty where the receiver has it. `lasting`: to try again would change nothing. `retry_after_s` is what
    the receiver asked for. No error names a secret, or what the receiver answered."""

    error: str = ""
    lasting: bool = False
    retry_after_s: float = 0.0


SENT = Outcome()
