"""S3: boto3 signs and lists, the bytes come as from any web server. Credentials are the tenant's alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

from shoal.cache.sources.http import HttpSource
from shoal.cache.sources.source import Source, Version
from shoal.core import Forbidden, Invalid, NotFound, Unavailable

_SIGNED_S = 900


@dataclass(frozen=True, slots=True)
class Credentials:
    """Without a key the requests are anonymous."""

    key: str = ""
    secret: str = ""
    token: str = ""
    endpoint: str = ""
    region: str = ""


def credentials_of(options: Mapping[str, Any]) -> Credentials:
    """From the options of `s3fs`: key, secret, token, endpoint_url, client_kwargs. Raises Invalid for others."""
    more = options.get("client_kwargs") or {}
    known = {"key", "secret", "token", "endpoint_url", "client_kwargs", "anon"}
    unknown = (set(options) - known) | (set(more) - {"endpoint_url", "region_name"})
    if unknown:
        raise Invalid(f"the cache does not know the option {min(unknown)!r} of S3", where="options")
    return Credentials(
        str(options.get("key") or ""), str(options.get("secret") or ""), str(options.get("token") or ""),
        str(options.get("endpoint_url") or more.get("endpoint_url") or ""), str(more.get("region_name") or ""),
    )  # fmt: skip


def own_credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    """In the tenant's process: the options with the credentials that boto3 finds there, where none are given."""
    found = dict(options)
    if found.get("key") or found.get("anon"):
        return found
    import boto3

    session = boto3.session.Session()
    known = session.get_credentials()
    if known is not None:
        frozen = known.get_frozen_credentials()
        found |= {"key": frozen.access_key, "secret": frozen.secret_key, "token": frozen.token or ""}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        found.setdefault("endpoint_url", endpoint)
    return found


@cache
def _client(credentials: Credentials) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    given: dict[str, Any] = {
        "connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 2}, "s3": {"addressing_style": "path"},
    }  # fmt: skip
    config = Config(**given) if credentials.key else Config(signature_version=UNSIGNED, **given)
    return boto3.session.Session().client(
        "s3", aws_access_key_id=credentials.key or None, aws_secret_access_key=credentials.secret or None,
        aws_session_token=credentials.token or None, endpoint_url=credentials.endpoint or None,
        region_name=credentials.region or "us-east-1", config=config,
    )  # fmt: skip


class S3Source:
    def __init__(self, bucket: str, key: str, credentials: Credentials) -> None:
        if not bucket:
            raise Invalid("a bucket is meant", where="url")
        self._bucket = bucket
        self._key = key
        self._credentials = credentials
        endpoint = credentials.endpoint.rstrip("/")
        self._http = HttpSource(f"s3://{endpoint and endpoint + '/'}{bucket}/{quote(key)}", {}, self._signed)

    @property
    def url(self) -> str:
        """With the endpoint: another one has other objects of the same name."""
        return self._http.url

    @property
    def rights(self) -> object:
        return self._credentials

    def head(self) -> Version:
        return self._http.head()

    def read(self, start: int, length: int, version: Version | None) -> Iterator[bytes]:
        return self._http.read(start, length, version)

    def children(self) -> Iterator[tuple[str, int]]:
        from botocore.exceptions import BotoCoreError, ClientError

        prefix = self._key.rstrip("/") + "/" if self._key else ""
        pages = _client(self._credentials).get_paginator("list_objects_v2")
        try:
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for one in page.get("Contents", ()):
                    if one["Key"] != prefix:
                        yield one["Key"][len(prefix) :], int(one["Size"])
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            kind = {"NoSuchBucket": NotFound, "AccessDenied": Forbidden}.get(code, Unavailable)
            raise kind(f"the objects cannot be listed: {code}", where=self.url) from error
        except BotoCoreError as error:
            raise Unavailable(f"the source does not answer: {error}", where=self.url) from error

    def child(self, name: str) -> Source:
        return S3Source(self._bucket, f"{self._key.rstrip('/')}/{name}".lstrip("/"), self._credentials)

    def _signed(self, method: str) -> str:
        operation = "head_object" if method == "HEAD" else "get_object"
        found: str = _client(self._credentials).generate_presigned_url(
            operation, Params={"Bucket": self._bucket, "Key": self._key}, ExpiresIn=_SIGNED_S
        )
        return found
