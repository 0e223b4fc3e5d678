"""Wrappers that pandas takes for its own: its warnings name the first line of the stack that is in no file of its."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

import pandas as pd

F = TypeVar("F")


def passed_by(function: F) -> F:
    """The same function, whose frames count as those of pandas."""
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_filename=pd.__file__)
    return function
