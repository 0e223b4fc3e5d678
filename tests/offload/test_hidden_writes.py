"""Memory of captured arrays that is written where no class sees it: what pends before that has the values before."""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import io
import operator
import re
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import linalg

from shoal.offload.arrays.exports import NATIVE
from shoal.offload.arrays.lazy import Lazy
from shoal.offload.arrays.tracked import Tracked


def _iterated(a: Any) -> None:
    for each in np.nditer(a, op_flags=["readwrite"]):
        each[...] = -7.0


def _iterated_together(a: Any) -> None:
    for each, other in np.nditer([a, None], ["external_loop"], [["readwrite"], ["writeonly", "allocate"]]):
        each[...] = other[...] = -7.0


def _nested(a: Any) -> None:
    rows, columns = np.nested_iters(a.reshape(10, 10), [[0], [1]], op_flags=["readwrite"])
    for _ in rows:
        for each in columns:
            each[...] = -7.0


def _bytes(view: Any) -> None:
    memoryview(view).cast("B")[:] = b"\0" * 800


def _put(a: Any) -> None:
    operator.setitem(a, slice(None), -7.0)


WRITES: dict[str, Callable[[Any], Any]] = {
    "nditer": _iterated,
    "nditer of several": _iterated_together,
    "nested_iters": _nested,
    "dot": lambda a: np.eye(100).dot(np.ones(100), out=a),
    "choose": lambda a: np.zeros(100, int).choose([np.ones(100)], out=a),
    "trace": lambda a: np.ones((2, 2, 100)).trace(out=a),
    "argmax": lambda a: np.ones((2, 100)).argmax(axis=0, out=a.view("i8")),
    "readinto": lambda a: io.BytesIO(b"\0" * 800).readinto(a),
    "memoryview": _bytes,
    "frombuffer": lambda a: _put(np.frombuffer(a)),
    "ndarray of a buffer": lambda a: _put(np.ndarray(100, float, a)),
    "pack_into": lambda a: struct.pack_into("100d", a, 0, *[3.0] * 100),
    "address": lambda a: ctypes.memset(a.ctypes.data, 0, 800),
    "state": lambda a: a.__setstate__(np.zeros(100).__reduce__()[2]),
    "astype": lambda a: _put(a.astype(float, copy=False)),
    "finite": lambda a: _put(np.asarray_chkfinite(a)),
    "solve": lambda a: linalg.solve(np.asfortranarray(np.eye(100) * 3), a, overwrite_b=True),
    "masked": lambda a: operator.iadd(np.ma.array(a, copy=False), 4.0),
    "masked_where": lambda a: operator.iadd(np.ma.masked_where(a < -5, a, copy=False), 4.0),
    "matrix": lambda a: _put(np.matrix(a, copy=False).A1),
    "subclass": lambda a: _put(a.view(type("Own", (np.ndarray,), {}))),
    "unstack": lambda a: _put(np.unstack(a.reshape(1, 100))[0]),
    "broadcast": lambda a: _put(np.lib.stride_tricks.as_strided(a, (100,))),
    "dlpack": lambda a: _put(np.from_dlpack(a)),
}

KINDS: dict[str, Callable[[], Any]] = {
    "whole": lambda: np.arange(100.0),
    "result": lambda: np.arange(100.0) + 0,
    "view": lambda: np.arange(200.0)[:100],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WRITES)
def test_what_pends_before_a_hidden_write_has_the_values_before_it(captured: None, name: str, kind: str) -> None:
    a = KINDS[kind]()
    later = a + 1
    assert type(later) is Lazy
    WRITES[name](a)
    assert later.tolist() == [float(each) + 1 for each in range(100)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [
    memoryview, np.frombuffer, lambda a: np.ma.array(a, copy=False), lambda a: np.matrix(a, copy=False).A1,
    lambda a: np.unstack(a.reshape(1, 100))[0], lambda a: np.asarray_chkfinite(a),
    lambda a: a.view(type("O", (np.ndarray,), {})),
])  # fmt: skip
def test_what_pends_while_another_name_of_the_memory_is_written(captured: None, make: Any, kind: str) -> None:
    a = KINDS[kind]()
    other = make(a)
    later = a + 1
    other[99] = -7.0
    assert (later[99], a[99]) == (100.0, -7.0)


def test_a_conversion_that_copies_nothing_is_the_array_itself(captured: None) -> None:
    a = np.arange(100.0)
    assert a.astype(float, copy=False) is a
    assert type(a.astype(int)) is Tracked


def test_a_pending_result_has_a_buffer(captured: None) -> None:
    a = np.arange(100.0)
    assert bytes(a + 1) == np.arange(1.0, 101.0).tobytes()
    assert io.BytesIO(b"\0" * 800).readinto(a + 1) == 800


def test_an_iterator_is_one(captured: None) -> None:
    assert "flags" in np.nested_iters.__text_signature__
    assert "itershape" in np.nditer.__text_signature__
    assert "itershape" in inspect.signature(np.nditer).parameters
    found = np.nditer(np.arange(100.0))
    assert isinstance(found, np.nditer)
    assert not isinstance(5, np.nditer)


def test_to_resize_to_nothing_changes_nothing(captured: None) -> None:
    for a in (np.eye(3), np.eye(3) + 0):
        a.resize()
        a.resize(None)
        assert a.tolist() == np.identity(3).tolist()
        with pytest.raises(TypeError):
            a.resize(9, refcheck="no")


def _sealed() -> Any:
    sealed = np.arange(100.0)
    sealed.flags.writeable = False
    return sealed


_REFUSED = {
    "gaps": (lambda: np.arange(200.0)[::2], hashlib.md5),
    "gaps of a result": (lambda: (np.arange(200.0) + 1)[::2], hashlib.md5),
    "order": (lambda: np.arange(100.0).reshape(10, 10).T, hashlib.md5),
    "to be written": (_sealed, io.BytesIO(b"\0" * 800).readinto),
}


@pytest.mark.skipif(sys.version_info < (3, 12) and not NATIVE.exists(), reason="the native part was not built")
@pytest.mark.parametrize("name", _REFUSED)
def test_a_buffer_that_numpy_refuses_is_refused_with_its_error(captured: None, name: str) -> None:
    make, ask = _REFUSED[name]
    array = make()
    assert type(array) is not np.ndarray
    with pytest.raises((ValueError, TypeError, BufferError)) as expected:
        ask(np.ndarray.view(array, np.ndarray))
    with pytest.raises(expected.type, match=re.escape(str(expected.value).rpartition(" ")[0])):
        ask(array)
    before = sys.getrefcount(array)
    for _ in range(10):
        with pytest.raises(expected.type):
            ask(array)
    assert sys.getrefcount(array) == before
    assert array.sum() > 0
