"""Objects behind HTTP: those of web servers, and of S3 and Google Cloud Storage through requests that are signed."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from shoal.cache.sources.source import Changed, Source, Uncacheable, Version, in_time
from shoal.core import Forbidden, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    import httpx

HEADERS = frozenset({"authorization", "cookie", "private-token"})
"""What a tenant may send along. Another header could make the server answer with other contents of the same tag."""

_DIGITS = 18
"""Of a size that an object may have."""

_REDIRECTS = 5
_CONNECT_S, _IDLE_S = 5.0, 10.0


@cache
def client() -> httpx.Client:
    """One for all tenants: it keeps no cookie and takes no credentials from the environment."""
    import httpx

    limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
    return httpx.Client(
        timeout=httpx.Timeout(_IDLE_S, connect=_CONNECT_S), follow_redirects=True, max_redirects=_REDIRECTS,
        limits=limits, trust_env=False, event_hooks={"request": [_refuse_metadata]},
    )  # fmt: skip


def _refuse_metadata(request: httpx.Request) -> None:
    """Link-local addresses are those of a cloud's metadata service, which hands out the machine's own credentials."""
    host = request.url.host.strip("[]")
    try:
        refused = ipaddress.ip_address(host).is_link_local
    except ValueError:
        refused = host.lower() == "metadata.google.internal"
    if refused:
        raise Forbidden(f"the cache reads nothing from {host}", where=str(request.url))


class HttpSource:
    """`sign(method)` gives the URL to ask, where that is not the object's own."""

    def __init__(self, url: str, headers: Mapping[str, str], sign: Callable[[str], str] | None = None) -> None:
        unknown = {name for name in headers if name.lower() not in HEADERS}
        if unknown:
            raise Invalid(f"the header {min(unknown)!r} cannot be sent along", where="headers", hint=", ".join(HEADERS))
        self._url = url
        self._headers = dict(headers)
        self._sign = sign

    @property
    def url(self) -> str:
        return self._url

    @property
    def rights(self) -> object:
        return tuple(sorted(self._headers.items()))

    def head(self) -> Version:
        import httpx

        target = self._url if self._sign is None else self._sign("HEAD")
        try:
            found = client().head(target, headers={**self._headers, "accept-encoding": "identity"})
        except httpx.HTTPError as error:
            raise self._away(error) from error
        self._check(found.status_code)
        return self._version(found.headers, found.headers.get("content-length"))

    def read(self, start: int, length: int, version: Version | None) -> Iterator[bytes]:
        import httpx

        headers = {**self._headers, "accept-encoding": "identity"}
        whole = start == 0 and (version is None or length >= version.size)
        if not whole:
            headers["range"] = f"bytes={start}-{start + length - 1}"
        if version is not None and version.exact and version.tag.startswith('"'):
            headers["if-match"] = version.tag
        target = self._url if self._sign is None else self._sign("GET")
        try:
            with client().stream("GET", target, headers=headers) as found:
                if found.status_code == 416:
                    return
                self._check(found.status_code)
                if not whole and found.status_code != 206 and start > 0:
                    raise Unavailable("the server cannot send a part of the object", where=self._url)
                if version is not None:
                    total = found.headers.get("content-range", "").rpartition("/")[2]
                    size = total or found.headers.get("content-length", str(version.size))
                    if _tag(found.headers) != version.tag or size != str(version.size):
                        raise Changed("the object changed while it was read", where=self._url)
                yield from in_time(_first(found.iter_raw(), length), time.monotonic)
        except httpx.HTTPError as error:
            raise self._away(error) from error

    def children(self) -> Iterator[tuple[str, int]]:
        raise Invalid("a web server has no folders", where=self._url, hint="name each object")

    def child(self, name: str) -> Source:
        return HttpSource(urljoin(self._url.rstrip("/") + "/", name), self._headers)

    def _away(self, error: Exception) -> Unavailable:
        return Unavailable(f"the source does not answer: {error or type(error).__name__}", where=self._url)

    def _check(self, status: int) -> None:
        if status in (404, 410):
            raise NotFound("there is no such object", where=self._url)
        if status in (401, 403):
            raise Forbidden("these credentials may not read the object", where=self._url)
        if status == 412:
            raise Changed("the object changed while it was read", where=self._url)
        if status >= 300:
            raise Unavailable(f"the source answers {status}", where=self._url)

    def _version(self, headers: Mapping[str, str], size: str | None) -> Version:
        tag = _tag(headers)
        if not tag or size is None or not size.isdecimal() or len(size) > _DIGITS:
            raise Uncacheable("the source tells no version or no size of it", where=self._url)
        return Version(tag, int(size), exact=tag.startswith('"'))


def _tag(headers: Mapping[str, str]) -> str:
    return headers.get("etag", "") or headers.get("last-modified", "")


def _first(parts: Iterator[bytes], length: int) -> Iterator[bytes]:
    """No more than was asked for: a server that sends too much is cut off one byte later, so that it is noticed."""
    left = length + 1
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left <= 0:
            return
