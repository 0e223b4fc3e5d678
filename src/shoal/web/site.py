"""The built page: which file answers a path, with which headers. Files are read when they are first asked for, and kept
packed; after a new build they are read again."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

FOLDER = Path(__file__).parent / "_site"
INDEX = "index.html"
_ASSETS = "assets/"
_LEAST_PACKED = 512
"""Smaller files are not worth packing."""
_TEXTS = frozenset({"text/html", "text/css", "text/javascript", "application/json", "image/svg+xml", "text/plain"})
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".woff2": "font/woff2", ".svg": "image/svg+xml",
          ".webmanifest": "application/manifest+json", ".map": "application/json"}  # fmt: skip

POLICY = "; ".join((
    "default-src 'self'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
    "font-src 'self'", "worker-src 'self'", "object-src 'none'", "base-uri 'none'", "form-action 'self'",
    "frame-ancestors 'none'",
))  # fmt: skip
"""Nothing of others, nothing inline, and no frame around the page."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Shoal</title>
<h1>The web page is not built</h1>
<p>This server runs from sources, and the files of its page are missing. Everything else works: the command line, the
API at <a href="/openapi.json">/openapi.json</a>, and metrics.</p>
<p>Build the page with Node.js 18 or newer, in the folder of the sources: <code>.ci/web</code>. Then load this page
again. Wheels of Shoal bring it along.</p></html>
"""


@dataclass(frozen=True, slots=True)
class SiteFile:
    """One file as it is sent. `packed` is its gzip, where that is smaller."""

    data: bytes
    packed: bytes | None
    kind: str
    etag: str
    lasting: bool
    """Its name changes with its content, so that browsers keep it for good."""


class Site:
    """`folder` is one that `npm run build` made, or not there."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._built: tuple[int, int] | None = None
        self._names: Mapping[str, Path] = {}
        self._files: dict[str, SiteFile] = {}

    @property
    def built(self) -> bool:
        return (self._folder / INDEX).is_file()

    def find(self, path: str) -> SiteFile | None:
        """The file of a path below `/ui/`. Paths that the page itself makes are the index's, but no file of `assets` is
        made up. None where there is nothing. Reads files: not for the event loop."""
        self._refresh()
        name = path if path in self._names else "" if path.startswith(_ASSETS) else INDEX
        if name not in self._names:
            return None
        if name not in self._files:
            self._files[name] = _read(self._names[name], lasting=name.startswith(_ASSETS))
        return self._files[name]

    def _refresh(self) -> None:
        try:
            found = (self._folder / INDEX).stat()
        except OSError:
            self._built, self._names, self._files = None, {}, {}
            return
        if (at := (found.st_mtime_ns, found.st_size)) != self._built:
            self._names = {
                f"{below}{path.name}": path
                for below in ("", _ASSETS)
                for path in sorted((self._folder / below).glob("*"))
                if path.is_file() and not path.is_symlink()
            }
            self._files, self._built = {}, at


def _read(path: Path, *, lasting: bool) -> SiteFile:
    data = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    packed = gzip.compress(data, 9, mtime=0) if kind in _TEXTS and len(data) >= _LEAST_PACKED else None
    if packed is not None and len(packed) >= len(data):
        packed = None
    return SiteFile(data, packed, kind, hashlib.sha256(data).hexdigest()[:32], lasting)


def answer(file: SiteFile | None, headers: Mapping[str, str]) -> Response:
    """What a browser with these request headers gets."""
    from starlette.responses import Response

    if file is None:
        return Response("there is no such file\n", 404, HEADERS, "text/plain")
    text = file.kind in _TEXTS
    packed = file.packed if file.packed is not None and _takes_gzip(headers.get("accept-encoding", "")) else None
    etag = f'"{file.etag}{"-gz" if packed is not None else ""}"'
    sent = {
        **HEADERS,
        "ETag": etag,
        "Vary": "Accept-Encoding",
        "Cache-Control": "public, max-age=31536000, immutable" if file.lasting else "no-cache",
    }
    if _has(headers.get("if-none-match", ""), etag):
        return Response(None, 304, sent)
    if packed is not None:
        sent["Content-Encoding"] = "gzip"
    sent["Content-Type"] = f"{file.kind}; charset=utf-8" if text else file.kind
    return Response(file.data if packed is None else packed, 200, sent)


def not_built() -> Response:
    """Says in words that there is no page."""
    from starlette.responses import Response

    return Response(_NOT_BUILT, 503, {**HEADERS, "Cache-Control": "no-store"}, "text/html")


def _takes_gzip(accepted: str) -> bool:
    for one in accepted.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _has(given: str, etag: str) -> bool:
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in given.split(","))
