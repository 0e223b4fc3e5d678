"""Sources of data: files, web servers, S3, Google Cloud Storage; each read with one tenant's credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from shoal.cache.sources.files import FileSource
from shoal.cache.sources.http import HttpSource
from shoal.cache.sources.s3 import S3Source, credentials_of, own_credentials
from shoal.cache.sources.source import Changed, Source, Uncacheable, Version, check_url, key_of
from shoal.core import Invalid

PROTOCOLS = ("file", "http", "https", "s3", "gs", "gcs")

__all__ = [
    "PROTOCOLS", "Changed", "Source", "Uncacheable", "Version", "check_url", "client_options", "key_of", "source_of",
]  # fmt: skip


def source_of(url: str, options: Mapping[str, Any], uid: int) -> Source:
    """What a URL means for a tenant with these options and this user. Raises Invalid for what cannot be cached."""
    check_url(url)
    protocol, split, rest = url.partition("://")
    if not split:
        protocol, rest = "file", url
    if protocol == "file":
        return FileSource(rest, uid)
    if protocol == "s3":
        bucket, _, key = rest.partition("/")
        return S3Source(bucket, key, credentials_of(options))
    if protocol in ("http", "https"):
        if not urlsplit(url).hostname:
            raise Invalid("the URL names no host", where="url")
        return HttpSource(url, options.get("headers") or {})
    if protocol in ("gs", "gcs"):
        token = options.get("token")
        endpoint = str(options.get("endpoint_url") or "https://storage.googleapis.com").rstrip("/")
        return HttpSource(f"{endpoint}/{quote(rest)}", {"authorization": f"Bearer {token}"} if token else {})
    raise Invalid(f"the cache cannot read {protocol}://", where="url", hint=f"it reads {', '.join(PROTOCOLS)}")


def client_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """In the tenant's process: what the daemon needs to read as this tenant."""
    return own_credentials(options) if url.startswith("s3://") else dict(options)
