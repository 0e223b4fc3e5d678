"""The methods of `optimize`."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    SHOAL = "shoal"
    WILLUMP = "willump"
    COMPILE = "compile"
    CASCADE = "cascade"
