"""State of capture: its settings, and the class that does it. One for the process: a class of arrays cannot have
two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy._core.umath import _extobj_contextvar

error_state = _extobj_contextvar
"""How floating point errors are handled in this thread."""


class State:
    """The functions of the present installation, and what they need."""

    def __init__(self) -> None:
        self.threshold = 65536
        self.whole_numbers = 65536
        """Elements below which an operation of whole numbers begins no chain: it takes less than its capture."""
        self.capture: Callable[[Any, tuple[Any, ...], Any], Any] = _not_installed
        self.compute: Callable[[Any], None] = _not_installed
        self.reduce: Callable[[Any, str], Any] = _not_installed
        self.eager: Callable[..., Any] = _not_installed
        self.call: Callable[..., Any] = _not_installed
        self.libraries: tuple[str, ...] = ()
        self.program: tuple[str, ...] = ()
        self.ordinary = error_state.get()
        self.why = "not-elementwise"
        """The reason of the last operation that was not captured; it is read at once, by the call that does it."""


def _not_installed(*_: Any) -> Any:
    raise RuntimeError("capture is not installed in this process")


state = State()

own_files: dict[str, bool] = {}


def is_program(frame: Any) -> bool:
    """Whether a frame runs the program's own code, not that of an installed library: results of which class a library's
    native code gets is its own affair."""
    name = frame.f_code.co_filename
    found = own_files.get(name)
    if found is None:
        found = own_files[name] = name.startswith(state.program) or not name.startswith(state.libraries)
    return found


def forget_files() -> None:
    own_files.clear()
