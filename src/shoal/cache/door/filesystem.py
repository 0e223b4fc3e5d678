"""The fsspec protocol `shoal`: `shoal::s3://bucket/key`, or `shoal://s3://bucket/key` where the protocol has no own
package here. A hit gives an ordinary file; a miss reads through."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from fsspec.implementations.chained import ChainedFileSystem

from shoal.cache.daemon.protocol import VIEW_VARIABLE
from shoal.cache.door.files import BUFFER, ChunkedFile, SourceFile, open_folder, read_meta
from shoal.cache.door.inputs import show_in
from shoal.cache.door.node import node, outcome
from shoal.cache.sources import Source, Uncacheable, Version, client_options, key_of, source_of
from shoal.core import Forbidden, Invalid, ShoalError

_BUFFER = io.DEFAULT_BUFFER_SIZE
"""Of a file on the fast disk. Where it is given, Python does not ask whether the file is a terminal."""


class ShoalFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """`target_protocol` and `target_options` as in other chained file systems. `cache_root`, `tenant` and `token` are
    those of the environment (SHOAL_CACHE, SHOAL_CACHE_TENANT, SHOAL_CACHE_TOKEN) unless given."""

    protocol: ClassVar[str] = "shoal"
    root_marker = ""
    async_impl = False

    def __init__(
        self, target_protocol: str | None = None, target_options: Mapping[str, Any] | None = None, fo: str = "",
        cache_root: str | None = None, tenant: str | None = None, token: str | None = None, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(**more)
        self.target_protocol = target_protocol or "file"
        self._given = dict(target_options or {})
        self._fo = fo
        self._node = node(cache_root, tenant, token)
        self._options: dict[str, Any] | None = None
        self._names: dict[str, tuple[str, str]] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        return text.removeprefix("shoal://").removeprefix("shoal::")

    def _url(self, path: str) -> str:
        path = path or self._fo
        if "://" in path:
            return path
        return f"{self.target_protocol}://{path}"

    def _source(self, url: str) -> Source:
        """Raises FileNotFoundError, PermissionError or OSError."""
        if self._options is None:
            self._options = client_options(url, self._given)
        return source_of(url, self._options, os.geteuid())

    # --- reading ---

    def open(self, path: str, mode: str = "rb", block_size: Any = None, cache_options: Any = None,
             compression: Any = None, **kwargs: Any) -> Any:  # fmt: skip
        known = self._names.get(path)
        if known is not None and mode == "rb" and compression is None:
            try:
                file = open(known[0], "rb", _BUFFER)  # noqa: SIM115, PTH123 what the caller wants, and the quickest way
            except OSError:
                pass
            else:
                self._node.hit(known[1])
                return file
        return super().open(path, mode, block_size, cache_options, compression=compression, **kwargs)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise NotImplementedError("the cache is read-only: write to the source")
        url = self._url(self._strip_protocol(path))
        with _as_os_error(url):
            source = self._source(url)
            key = key_of(source.url)
            name = f"{self._node.links}/{key}"
            self._names[path] = name, key
            try:
                file = open(name, "rb", _BUFFER)  # noqa: SIM115, PTH123
            except OSError:
                return self._miss(url, source, key, name)
            self._node.hit(key)
            return file

    def _miss(self, url: str, source: Source, key: str, name: str) -> Any:
        unversioned = False
        try:
            with self._node.waiting():
                found = self._node.ask("open", url=url, options=self._options or {})
        except ShoalError as error:
            if error.code != Uncacheable.code:
                raise
            unversioned, found = True, {"outcome": "through"}
        told = outcome(found)
        if told == "held":
            try:
                file = open(name, "rb", _BUFFER)  # noqa: SIM115, PTH123
            except OSError:  # evicted since
                told = "through"
            else:
                self._node.hit(key)
                return file
        if told == "chunks" or found is None:
            made = self._chunked(url, source, key, found)
            if made is not None:
                return made
        version = _version_of(found)
        if version is None and not unversioned:
            with suppress(Uncacheable):
                version = source.head()
        raw = SourceFile(source, version, self._node)
        return io.BufferedReader(raw, BUFFER)

    def _chunked(self, url: str, source: Source, key: str, found: Any) -> Any:
        """Without a daemon, what the links say is there."""
        folder = open_folder(f"{self._node.links}/{key}.d", None)
        meta = read_meta(folder) if folder >= 0 else None
        if folder >= 0:
            os.close(folder)
        told = found if found is not None else meta
        if told is None:
            return None
        chunk_bytes = int(meta["chunk_bytes"]) if meta else self._node.chunk_bytes
        return io.BufferedReader(
            ChunkedFile(self._node, key, url, self._options or {}, source, told, chunk_bytes), BUFFER
        )

    def show_in(self, path: str, target: str) -> bool:
        """Whether the local target, a file or a folder, is now what is below the path: by links, not by a copy."""
        view = os.environ.get(VIEW_VARIABLE)
        if not view:
            return False
        url = self._url(self._strip_protocol(path))
        with _as_os_error(url):
            options = client_options(url, self._given)
            try:
                return show_in(self._node, url, options, view, Path(target), lambda name: self.open(path + name))
            except ShoalError as error:
                if error.code != Uncacheable.code:
                    raise
                return False

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with self.open(path, "rb") as file:
            if start is not None:
                file.seek(start, os.SEEK_SET if start >= 0 else os.SEEK_END)
            if end is not None and end < 0:
                end += self.size(path)
            data: bytes = file.read() if end is None else file.read(max(end - file.tell(), 0))
        return data

    # --- looking ---

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        url = self._url(self._strip_protocol(path))
        with _as_os_error(url):
            source = self._source(url)
            try:
                version = source.head()
            except Uncacheable:
                return {"name": path, "size": None, "type": "file"}
            except ShoalError as error:
                first = None if isinstance(error, Forbidden) else self._first_child(source)
                if first is None:
                    raise
                return {"name": path, "size": 0, "type": "directory"}
            return {"name": path, "size": version.size, "type": "file", "ETag": version.tag}

    def _first_child(self, source: Source) -> Any:
        try:
            return next(source.children(), None)
        except ShoalError:
            return None

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        path = self._strip_protocol(path)
        url = self._url(path)
        base = (path or self._fo).rstrip("/")
        found: dict[str, dict[str, Any]] = {}
        with _as_os_error(url):
            source = self._source(url)
            try:
                children = list(source.children())
            except Invalid:
                children = []
            for below, size in children:
                first, inside, _rest = below.partition("/")
                name = f"{base}/{first}"
                found[name] = (
                    {"name": name, "size": 0, "type": "directory"}
                    if inside
                    else {"name": name, "size": size, "type": "file"}
                )
            if not found:
                one = self.info(path)
                if one["type"] == "file":
                    found[path] = one
        rows = sorted(found.values(), key=lambda row: str(row["name"]))
        return rows if detail else [row["name"] for row in rows]


def _version_of(found: Any) -> Version | None:
    if found is None or "tag" not in found:
        return None
    return Version(str(found["tag"]), int(found["size"]), bool(found.get("exact", True)))


class _as_os_error:
    """What a source says, as the errors that readers of files expect."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: Any, error: Any, _trace: Any) -> None:
        if isinstance(error, ShoalError):
            kind = {"not-found": FileNotFoundError, "forbidden": PermissionError}.get(error.code, OSError)
            raise kind(f"{self._url}: {error.what}") from error
