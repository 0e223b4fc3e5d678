"""Recognition of a browser's requests that are the page's own, decided from their headers alone.

Three attacks are refused. DNS rebinding: a foreign page whose name suddenly means this server still sends its own name
as `Host`. Cross-site requests: a foreign page may send a request with the reader's cookie, but neither a header of its
choice nor a false `Origin` or `Sec-Fetch-Site`. Other ports of the same host: cookies and `SameSite` do not tell ports
apart, `Origin` does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from shoal.core import Forbidden

MARK = "x-shoal-web"
"""The header that the page sends with each request that changes something."""

SAFE = frozenset({"GET", "HEAD"})
_LOOPBACK = "localhost"
HOSTS_HINT = "the setting web.hosts names the hosts of a proxy before the server"


def host_name(host: str) -> str:
    """The name in a `Host` header, in lower case and without its port; "" for what is none."""
    host = host.strip().lower()
    if host.startswith("["):
        name, closed, port = host[1:].partition("]")
        good = closed and (not port or (port.startswith(":") and port[1:].isdecimal()))
        return name if good and _is_address(name) else ""
    name, colon, port = host.partition(":")
    if colon and not port.isdecimal():
        return ""
    return name.rstrip(".")


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether a browser that sends this `Host` was led here on purpose. An address is always so: a foreign page can
    make its own name mean this server, but never an address."""
    name = host_name(host)
    return name != "" and (name == _LOOPBACK or name in names or _is_address(name))


def is_own_page(method: str, headers: Mapping[str, str], names: Collection[str]) -> bool:
    """Whether a request comes from a page of this server, or from the reader alone, as by the address bar. A browser
    says so in `Sec-Fetch-Site`; one that does not know it, or that has no secure connection, in `Origin`."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin" or (site == "none" and method in SAFE)
    origin = headers.get("origin")
    if origin is None:
        return method in SAFE
    found = urlsplit(origin).netloc.lower()
    return found != "" and (found == headers.get("host", "").strip().lower() or host_name(found) in names)


def refuse(method: str, headers: Mapping[str, str], names: Collection[str]) -> None:
    """Raises Forbidden for a request with a session's cookie that the page itself would not send."""
    if not is_own_host(headers.get("host", ""), names):
        raise Forbidden("a sign-in does not hold under this host name", where="Host", hint=HOSTS_HINT)
    if not is_own_page(method, headers, names):
        raise Forbidden("a sign-in does not hold for requests of another page", where="Origin", hint=HOSTS_HINT)
    if method not in SAFE and headers.get(MARK) != "1":
        hint = "send X-Shoal-Web: 1, or a token in place of the cookie"
        raise Forbidden(
            "a request with the page's cookie has to carry the page's header", where="X-Shoal-Web", hint=hint
        )


def is_secure(headers: Mapping[str, str]) -> bool:
    """Whether the page was reached by TLS, as its `Origin` says: the server itself has none, a proxy before it may."""
    return headers.get("origin", "").lower().startswith("https://")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
