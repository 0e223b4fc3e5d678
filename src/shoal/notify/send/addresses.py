"""Addresses of mail and of webhooks. A webhook may be at none that leads inward, unless the settings
name its network.

The address is looked at when a connection is made, once its name is resolved: a name may mean another address a moment
after it was checked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from shoal.core import Invalid

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_LONGEST_URL = 2000

_LOCAL = r"[A-Za-z0-9_%+'=~#&-]+(?:\.[A-Za-z0-9_%+'=~#&-]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_MAIL = re.compile(rf"({_LOCAL})@((?:{_LABEL}\.)*{_LABEL})")
_LONGEST_MAIL = 254


def check_mail_address(address: str, where: str, domains: frozenset[str] = frozenset()) -> str:
    """As it is given. Raises Invalid for what is no mail address, or is of a domain to which nothing is sent."""
    found = _MAIL.fullmatch(address) if len(address) <= _LONGEST_MAIL and not address.startswith("-") else None
    if found is None:
        raise Invalid(f"{address!r} is no mail address", where=where, hint="such as alice@example.org")
    if domains and found[2].lower() not in domains:
        raise Invalid(
            f"no mail goes to {found[2]}", where=where,
            hint=f"the server's setting notify.mail_domains allows {', '.join(sorted(domains))}",
        )  # fmt: skip
    return address


def read_networks(text: str, where: str) -> tuple[Network, ...]:
    """`10.0.0.0/8, fd00::/8`. Raises Invalid."""
    found = []
    for word in text.replace(",", " ").split():
        try:
            found.append(ipaddress.ip_network(word))
        except ValueError as error:
            raise Invalid(f"{word!r} is no network: {error}", where=where, hint="such as 10.0.0.0/8") from None
    return tuple(found)


def allowed(text: str, inward: Sequence[Network]) -> bool:
    """Whether a resolved address is one of the internet, or of a network that the settings open."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(_global(one) or is_inward(str(one), inward) for one in (address, *_meant(address)))


def is_inward(text: str, inward: Sequence[Network]) -> bool:
    """Whether it is in one of the networks that the settings open."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in network for network in inward if network.version == mapped.version)


def _global(address: _Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return _global(mapped)
    special = (
        address.is_multicast, address.is_reserved, address.is_loopback, address.is_link_local, address.is_unspecified,
        getattr(address, "is_site_local", False),
    )  # fmt: skip
    return _is_gateway(address) or (address.is_global and not any(special))


def _is_gateway(address: _Address) -> bool:
    """A NAT64 address is as good as the one it leads to, which is looked at by itself."""
    return isinstance(address, ipaddress.IPv6Address) and address in _NAT64[0]


def _meant(address: _Address) -> list[_Address]:
    """The addresses to which one leads that wraps others: 6to4, Teredo, NAT64, and those of old."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[_Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    found += list(address.teredo or ())
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found


def check_url(url: str, where: str) -> str:
    """As it is kept. Raises Invalid for what is no URL of a webhook."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Invalid(f"the URL cannot be read: {error}", where=where) from None
    hint = "such as https://hooks.example.org/shoal"
    if len(url) > _LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid("a URL is ASCII without blanks, and short", where=where, hint=hint)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Invalid("a webhook's URL begins with https:// and names a host", where=where, hint=hint)
    if parts.username is not None or parts.password is not None:
        raise Invalid("a URL with a name or password in it is refused", where=where, hint="requests are signed instead")
    if port == 0:
        raise Invalid("port 0 is none", where=where)
    return url


def shown_url(url: str) -> str:
    """Without what may be a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/..."
