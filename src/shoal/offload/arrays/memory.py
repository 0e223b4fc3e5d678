"""Memory that pending results read: what is written must be read before.

Memory that a creation function made belongs to one plain array, its root. Programs see it through tracked arrays only;
one that was taken past them shows in the root's reference count, and is never read late.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

if TYPE_CHECKING:
    from shoal.offload.arrays.lazy import Lazy

base_of = np.ndarray.base.__get__

_SWEEP = 512
"""Entries after which those of dead arrays are removed; then again when there are twice as many as stayed."""

_FEW = 8


class _Readers(list["ref[Lazy]"]):
    """Those of one root, and the number of them at which they are looked through."""

    __slots__ = ("most",)

    def __init__(self) -> None:
        super().__init__()
        self.most = _SWEEP


class Memory:
    """The live views and the pending readers of each root."""

    def __init__(self, tracked: type, guarded: type) -> None:
        self._tracked, self._guarded = tracked, guarded
        self._views: dict[int, list[ref[Any]]] = {}
        self._escaped: dict[int, ref[Any]] = {}
        self._readers: dict[int, tuple[ref[Any], _Readers]] = {}
        self._most_views = self._most_readers = _SWEEP

    def add_view(self, parent: Any, view: Any) -> int:
        """Remember a view; answers how many this memory has had since it was last read by a captured operation."""
        key = id(self.root(parent))
        known = self._views.get(key)
        if known is None:
            if len(self._views) >= self._most_views:
                self._views = {key: some for key, some in self._views.items() if any(one() is not None for one in some)}
                self._most_views = max(_SWEEP, 2 * len(self._views))
            known = self._views[key] = []
        known.append(ref(view))
        return len(known)

    def keep_live_views(self, root: int) -> None:
        self._views[root] = [one for one in self._views.get(root, ()) if one() is not None]

    def private_root(self, array: Any) -> int:
        """The identity of the root, where nothing outside tracked arrays shares it; else 0."""
        root = base_of(array)
        while type(root) is not np.ndarray and isinstance(root, self._tracked):
            root = base_of(root)
        # its references: the variable here, the argument, and the one tracked array that was made of it
        if type(root) is not np.ndarray or base_of(root) is not None or sys.getrefcount(root) > 3:
            return 0
        return 0 if id(root) in self._escaped else id(root)

    def escape(self, array: Any) -> None:
        """The memory has a reader that is not seen, for as long as the memory is there."""
        root = self.root(array)
        key = id(root)
        self._escaped[key] = ref(root, lambda _: self._escaped.pop(key, None))

    def expose(self, array: Any) -> None:
        """A plain array shares this memory. That of a whole array counts in the root's references; that of a view
        holds the view alone."""
        if isinstance(base_of(array), self._tracked):
            self.escape(array)

    def root(self, array: Any) -> Any:
        found = array
        while (base := base_of(found)) is not None and isinstance(base, np.ndarray):
            found = base
        return found

    def guard(self, array: Any, root: int, reader: Lazy) -> None:
        """From now on, writing into the memory of this root computes the reader first."""
        views = self._views.get(root)
        if views is not None and len(views) > _FEW:
            self.keep_live_views(root)
        entry = self._readers.get(root)
        if entry is None or entry[0]() is None:  # or left by an array that is gone
            first = array
            while isinstance(base := base_of(first), self._tracked):
                first = base
            if len(self._readers) >= self._most_readers:
                self._sweep()
                self._most_readers = max(_SWEEP, 2 * len(self._readers))
            entry = self._readers[root] = (ref(first), _Readers())
        elif len(entry[1]) >= entry[1].most:
            entry[1][:] = [one for one in entry[1] if (lazy := one()) is not None and lazy.pending]
            entry[1].most = max(_SWEEP, 2 * len(entry[1]))
        entry[1].append(ref(reader))
        if type(array) is not self._guarded or len(entry[1]) == 1:
            self._set_class(root, entry[0], self._guarded)

    def _set_class(self, root: int, first: ref[Any], kind: type) -> None:
        for one in (first, *self._views.get(root, ())):
            view = one()
            if view is not None and type(view) in (self._tracked, self._guarded) and id(self.root(view)) == root:
                view.__class__ = kind

    def flush(self, array: Any) -> None:
        """Compute every pending reader of the memory of this array."""
        self._flush(id(self.root(array)))

    def _flush(self, key: int) -> None:
        entry = self._readers.get(key)
        if entry is None:
            return
        for one in list(entry[1]):
            if (lazy := one()) is not None and lazy.pending:
                lazy.compute()
        if self._readers.pop(key, None) is not None:
            self._set_class(key, entry[0], self._tracked)

    def flush_all(self) -> None:
        for key in list(self._readers):
            self._flush(key)

    def _sweep(self) -> None:
        for key, (first, readers) in list(self._readers.items()):
            if not any((lazy := one()) is not None and lazy.pending for one in readers):
                del self._readers[key]
                self._set_class(key, first, self._tracked)
