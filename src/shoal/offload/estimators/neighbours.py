"""Nearest neighbours by scikit-learn-intelex, which compares all pairs in blocks, and has less to do before and after.

Its import takes about a second: that waits for a call which repays it at once, or for many smaller ones, those of runs
before included. Its first answer for a fit is compared with scikit-learn's on a sample, as is the time that it takes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from shoal.offload.estimators.gram import callers_frame
from shoal.offload.history import History
from shoal.offload.profile import PROFILE

_MODULE = "sklearnex.neighbors"

_LARGE = 5e9
"""Queries x points x features from which the import is repaid by one call. One core does 1e9 in about half a second by
a tree of 16 features."""

_FEWEST_FEATURES = 8
"""With less, a tree looks at few points."""

_REPAID_S = 3.0
"""Of smaller calls, from which the import is begun in the background."""

_SAMPLE = 200
_FASTER = 0.6
"""Of scikit-learn's time for the sample, from which the other library takes small calls."""


def predicting(original: Callable[..., Any], history: History) -> Callable[..., Any]:
    """In place of `KNeighborsClassifier.predict`."""
    twins: WeakKeyDictionary[Any, tuple[Any, Any, str]] = WeakKeyDictionary()
    loading = threading.Thread(target=_load, daemon=True)

    def twin_of(model: Any, queries: np.ndarray) -> tuple[Any, str]:
        """The model that answers in place of this one; None with the reason where it is better asked itself. It is kept
        as long as the fit that it copies."""
        fit, large = model._fit_X, queries.shape[0] * model._fit_X.size >= _LARGE
        known = twins.get(model)
        if known is None or known[0] is not fit:
            known = twins[model] = (fit, None, "plain-faster")
            if not large:
                return known[1:]  # a fit that is asked once repays no comparison
        if known[2] == "plain-faster" and (large or (_MODULE in sys.modules and not loading.is_alive())):
            known = twins[model] = (fit, *_compared(model, queries, original, anyhow=large))
        return known[1:]

    @functools.wraps(original)
    def predict(self: Any, X: Any) -> Any:
        began = time.perf_counter()
        reason = _reason(self, X)
        twin = None
        if reason == "sklearnex":
            twin, reason = twin_of(self, X)
        result = original(self, X) if twin is None else twin.predict(X)
        seconds = time.perf_counter() - began
        if reason == "plain-faster" and history.add(_MODULE, seconds) > _REPAID_S and loading.ident is None:
            with contextlib.suppress(RuntimeError):  # another thread was first
                loading.start()
        if reason != "small":
            frame, backend = callers_frame(), "plain" if twin is None else "sklearnex"
            PROFILE.add((frame.f_code, frame.f_lasti), "KNeighborsClassifier.predict", backend, reason, seconds)
        return result

    return predict


def _reason(model: Any, queries: Any) -> str:
    """`sklearnex`, or why scikit-learn does it itself."""
    points = getattr(model, "_fit_X", None)
    if type(queries) is not np.ndarray or type(points) is not np.ndarray or queries.ndim != 2 or not len(queries):
        return "small"
    if type(model).__module__.partition(".")[0] != "sklearn" or queries.shape[1] != points.shape[1]:
        return "options"
    usual = model.weights == "uniform" and model.effective_metric_ == "euclidean" and not model.outputs_2d_
    if not usual or queries.dtype != np.float64 or points.dtype != np.float64 or not np.isfinite(queries).all():
        return "options"
    if points.shape[1] < _FEWEST_FEATURES:
        return "plain-faster"
    return "sklearnex" if _installed() else "unavailable"


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("sklearnex") is not None


def _load() -> None:
    with contextlib.suppress(Exception):  # whatever is wrong with it: the first comparison says so
        importlib.import_module(_MODULE)


def _compared(model: Any, queries: np.ndarray, original: Callable[..., Any], *, anyhow: bool) -> tuple[Any, str]:
    """A model that gives the same for a sample, in less time unless `anyhow`; or None, with the reason."""
    rows = np.random.Generator(np.random.PCG64(0)).integers(0, len(queries), min(_SAMPLE, len(queries)))
    some = queries[rows]
    try:
        classifier = importlib.import_module(_MODULE).KNeighborsClassifier
        twin = classifier(n_neighbors=model.n_neighbors, algorithm="brute").fit(model._fit_X, model.classes_[model._y])
        twin.predict(some)
        began = time.perf_counter()
        found = twin.predict(some)
        taken = time.perf_counter() - began
    except Exception:  # whatever it raises: scikit-learn does the work
        return None, "error"
    began = time.perf_counter()
    expected = original(model, some)
    if not np.array_equal(expected, found):
        return None, "untrusted"
    return (twin, "sklearnex") if anyhow or taken < _FASTER * (time.perf_counter() - began) else (None, "slower")
