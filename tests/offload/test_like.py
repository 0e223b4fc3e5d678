"""Functions of NumPy that are told of a class by `like=`: the class sees the function that a program has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy._core.overrides import ARRAY_FUNCTIONS

pytestmark = pytest.mark.usefixtures("captured")


class Foreign:
    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        assert function is getattr(np, function.__name__)
        return function.__name__, args, options


@pytest.mark.parametrize(
    ("name", "args"),
    [("full", ((2,), 3.0)), ("ones", (2,)), ("zeros", (2,)), ("eye", (3,)), ("require", ([1],)), ("array", ([1],))],
)
def test_a_class_is_told_of_the_function_that_the_program_has(name: str, args: tuple[Any, ...]) -> None:
    function: Callable[..., Any] = getattr(np, name)
    assert function in ARRAY_FUNCTIONS
    assert function(*args, like=Foreign()) == (name, args, {})
    plain = function(*args, like=None)
    assert np.array_equal(function(*args, like=np.zeros(1)), plain)
    with pytest.raises(TypeError, match="The `like` argument"):
        function(*args, like=1)


def test_iterators_are_of_the_class_that_the_program_has() -> None:
    made = np.nditer(np.arange(3))
    assert isinstance(made, np.nditer)
    assert [int(one) for one in np.nditer.copy(made)] == [0, 1, 2]  # type: ignore[call-overload]
