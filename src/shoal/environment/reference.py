"""References to images: as a manifest has them, and as skopeo takes them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DIGEST = re.compile(r"(?P<rest>.+)@sha256:(?P<hex>[0-9a-f]{64})")
_REGISTRY = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(:[0-9]{1,5})?)/"
    r"(?P<name>[a-z0-9]+([._/-]+[a-z0-9]+)*)(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
)
_HINT = "write oci:DIR, docker-archive:FILE, or REGISTRY/NAME[:TAG], such as docker.io/library/debian:12"


@dataclass(frozen=True, slots=True)
class Image:
    """`source` is what skopeo copies from. `digest`, in hexadecimal, is what was pinned. `host` is the registry; None
    for what lies on the machine. `name` has neither tag nor digest."""

    source: str
    name: str
    digest: str | None
    host: str | None

    @property
    def local(self) -> bool:
        return self.host is None

    @property
    def pinned(self) -> str | None:
        """What skopeo copies from, with KEY in the place of a digest; None where it knows no digests."""
        return None if self.local else f"docker://{self.name}@sha256:KEY"


def read_image(text: str) -> Image:
    """Raises ValueError, which says what to write."""
    pinned = _DIGEST.fullmatch(text)
    rest, digest = (pinned["rest"], pinned["hex"]) if pinned else (text, None)
    transport, _, location = rest.partition(":")
    if transport in ("oci", "docker-archive"):
        if not location.startswith("/") or "/../" in f"{location}/":
            raise ValueError(f"{location!r} is no absolute path; {_HINT}")
        return Image(rest, rest, digest, None)
    found = _REGISTRY.fullmatch(rest)
    if found is None or ("." not in found["host"] and ":" not in found["host"] and found["host"] != "localhost"):
        raise ValueError(f"{text!r} is no image; {_HINT}")
    if digest is not None:
        return Image(f"docker://{found['host']}/{found['name']}@sha256:{digest}",
                     f"{found['host']}/{found['name']}", digest, found["host"])  # fmt: skip
    return Image(f"docker://{rest}", f"{found['host']}/{found['name']}", None, found["host"])
