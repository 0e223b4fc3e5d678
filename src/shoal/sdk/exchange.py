"""Performs calls: the one place that knows how a server is found again, and what may be sent twice."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from shoal.contract.calls import Call, Flow, Pause, Send
from shoal.core import Conflict, DiskFull, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable
from shoal.sdk.locate import Locate, NoServer

T = TypeVar("T")


class Exchange:
    """Performs calls against the server where it is now, for so long as patience lasts; `first_s` until it has answered
    once, where that is less.

    Nothing that may have had an effect is sent again unless it is repeatable.
    """

    def __init__(
        self, locate: Locate, *, patience_s: float, first_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._locate = locate
        self._patience_s = patience_s
        self._first_s = first_s
        self._clock = clock

    def perform(self, call: Call[T]) -> Flow[T]:
        began = self._clock()
        delay = 0.05
        while True:
            target = self._locate()
            request = _request(call, target.url, target.token)
            try:
                response: httpx.Response = yield Send(request)
            except httpx.TransportError as error:
                sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if (sent and not call.repeatable) or self._clock() >= began + min(self._patience_s, self._first_s):
                    raise _unreachable(target.url, error, sent=sent) from error
            else:
                self._first_s = math.inf
                give_up_at = began + self._patience_s
                asked = _told_to_wait_s(response)
                if asked is not None and self._clock() + asked < give_up_at:
                    yield Pause(asked)  # refused before it had any effect
                    continue
                if response.status_code != 503 or _DISK_FULL in response.content or self._clock() >= give_up_at:
                    return read(call, response)
            yield Pause(delay)
            delay = min(0.5, delay * 1.5)


_MOST_DIGITS = 6
_DISK_FULL = json.dumps(DiskFull.code).encode()
"""In an answer that waiting does not change."""


def _told_to_wait_s(response: httpx.Response) -> float | None:
    """How long the server asks to wait because this token asks too often; None for all other answers."""
    text = response.headers.get("retry-after", "")
    if response.status_code != 429 or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    # A full queue, the other reason for 429, will hardly be shorter then.
    return float(text) if b'"rate-limited"' in response.content else None


def _request(call: Call[Any], url: str, token: str | None) -> httpx.Request:
    headers = {"accept": "application/json", **call.headers}
    if not url.startswith(("http://", "https://")):
        raise Invalid(f"{url!r} is no address", where="SHOAL_URL", hint="such as http://127.0.0.1:7070")
    if token:
        if not (token.isascii() and token.isprintable()):
            raise Invalid("this is no token: it has characters that no token has", where="SHOAL_TOKEN")
        headers["authorization"] = f"Bearer {token}"
    params = {name: value for name, value in call.params.items() if value is not None}
    timeout = httpx.Timeout(30.0 + call.wait_s, connect=5.0).as_dict()
    try:
        return httpx.Request(
            call.method, url + call.path, params=params, headers=headers, content=call.body,
            extensions={"timeout": timeout},
        )  # fmt: skip
    except (httpx.InvalidURL, ValueError) as error:
        raise Invalid(
            f"{url!r} is no address: {error}", where="SHOAL_URL", hint="such as http://127.0.0.1:7070"
        ) from None


def _unreachable(url: str, error: httpx.TransportError, *, sent: bool) -> ShoalError:
    if sent:
        return NoServer(
            f"the connection to {url} broke: {type(error).__name__}", hint="ask what became of it before trying again"
        )
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return NoServer(
            f"the certificate of {url} is not trusted", where="SHOAL_URL",
            hint="SHOAL_CA_FILE names the file of the authority that signed it",
        )  # fmt: skip
    return NoServer(f"no server answers at {url}", hint="start it with `shoal up --detach`, or check SHOAL_URL")


_ERRORS: dict[int, type[ShoalError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    413: Invalid,
    422: Invalid,
    503: Unavailable,
}


def read(call: Call[T], response: httpx.Response) -> T:
    """The answer's value. Raises the error it carries."""
    if response.is_success:
        try:
            return call.read(response)
        except ValueError:
            raise _strange(response) from None
    try:
        body = json.loads(response.content)["error"]
        what, where, hint = str(body["what"]), body.get("where"), body.get("hint")
    except (ValueError, KeyError, TypeError):
        raise _strange(response) from None
    if response.status_code == 429:
        raise Overloaded(what, where=where, hint=hint, retry_after_s=_retry_after(response))
    kind = _ERRORS.get(response.status_code, ShoalError)
    if kind is Invalid:
        problems = tuple(Invalid(p["what"], where=p.get("where"), hint=p.get("hint")) for p in body.get("problems", ()))
        raise Invalid(what, where=where, hint=hint, problems=problems)
    if body.get("code") == DiskFull.code:
        kind = DiskFull
    raise kind(what, where=where, hint=hint)


def _strange(response: httpx.Response) -> ShoalError:
    return ShoalError(
        f"{response.request.url} answered {response.status_code}, and not as Shoal does", hint="check SHOAL_URL"
    )


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 1.0
