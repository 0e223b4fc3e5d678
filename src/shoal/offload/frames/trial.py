"""Choice between two engines for a call: the plain library, until the other one has given the same result in less time.

A trial runs both and compares their results whole. It costs as much as the call, so it waits until calls of its kind
have taken many times that, over this run and those before; the import of the other engine counts as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from shoal.offload.arrays.state import is_program
from shoal.offload.history import History
from shoal.offload.profile import PROFILE
from shoal.offload.settings import CompileMode, OffloadSettings
from shoal.offload.trust import Trust

_SHARE = 0.05
"""Of the seconds that calls of a kind have taken, what a trial may cost."""

_IMPORT_S = 0.3
_FASTER = 0.8
"""Of the plain library's time, from which the other engine takes the calls."""

_MODULE = "polars"
_THREADS = "POLARS_MAX_THREADS"


class Engine:
    """Polars, imported once that is repaid, with as many threads as the program has cores."""

    def __init__(self, settings: OffloadSettings, history: History, trust: Trust) -> None:
        self._settings, self._history, self._trust = settings, history, trust
        self.allowed = (
            _MODULE in settings.allowed and not settings.strict and importlib.util.find_spec(_MODULE) is not None
        )
        self._known: dict[tuple[Any, ...], str] = {}
        self._loading: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Its threads are not in a forked child, which would wait for them for ever."""
        self.allowed = False

    def _load(self) -> bool:
        """Whether it is there; begins to import it."""
        if self._loading is None:
            self._loading = threading.Thread(target=self._import, daemon=True)
            self._loading.start()
        if self._settings.compile is CompileMode.WAIT:
            self._loading.join()
        return not self._loading.is_alive() and _MODULE in sys.modules

    def _import(self) -> None:
        before = os.environ.get(_THREADS)
        os.environ[_THREADS] = before or str(self._settings.cores)
        try:
            importlib.import_module(_MODULE)
        except Exception:  # whatever is wrong with it: pandas does the work
            self.allowed = False
        finally:
            if before is None:
                os.environ.pop(_THREADS, None)

    def call(
        self, name: str, key: tuple[Any, ...], size: int, plain: Callable[[], Any], other: Callable[[], Any],
        equal: Callable[[Any, Any], bool],
    ) -> Any:  # fmt: skip
        """The result of a call. `other` answers None where the data is not of its kind."""
        frame: Any = sys._getframe(2)
        while frame is not None and (frame.f_globals.get("__name__") or "").partition(".")[0] == "pandas":
            frame = frame.f_back
        if frame is None or not is_program(frame):
            return plain()
        site = (frame.f_code, frame.f_lasti)
        kind = (name, *key, size.bit_length())
        began = time.perf_counter()
        if self._known.get(kind) == "polars":
            found = self._tried(kind, other)
            if found is not None:
                PROFILE.add(site, name, "polars", "polars", time.perf_counter() - began)
                return found
            began = time.perf_counter()
        expected = plain()
        seconds = time.perf_counter() - began
        PROFILE.add(site, name, "plain", self._known.get(kind, "plain-faster"), seconds)
        if kind not in self._known and self._due(name, seconds):
            began = time.perf_counter()
            found = self._tried(kind, other)
            taken = time.perf_counter() - began
            if found is not None:
                self._known[kind] = self._verdict(kind, equal(expected, found), taken < _FASTER * seconds)
        return expected

    def _due(self, name: str, seconds: float) -> bool:
        seen = self._history.add(f"polars/{name}", seconds)
        loaded = _MODULE in sys.modules
        if self._settings.compile is not CompileMode.WAIT:
            if self._settings.compile is CompileMode.NEVER:
                return False
            if _SHARE * seen < 2 * seconds + (0.0 if loaded else _IMPORT_S):
                return False
        return self._load()

    def _tried(self, kind: tuple[Any, ...], other: Callable[[], Any]) -> Any:
        try:
            found = other()
        except Exception:  # whatever it raises: pandas does the work, from now on
            self._known[kind] = "error"
            return None
        if found is None:
            self._known[kind] = "unlike"
        return found

    def _verdict(self, kind: tuple[Any, ...], same: bool, faster: bool) -> str:
        self._trust.settle((_MODULE, str(kind[0]), f"{hash(kind) & 0xFFFF:x}"), same)
        return "untrusted" if not same else "polars" if faster else "slower"
