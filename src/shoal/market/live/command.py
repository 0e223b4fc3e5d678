"""A provider that is a site's own program: one run for each call, JSON in and JSON out, no shell.

The program gets the call as its last word and an object on its standard input, and answers with one on its standard
output. Exit code 0 is success, 3 says that nothing was launched for want of capacity; anything else leaves the outcome
open, and the call is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.core import Clock, Invalid, Unavailable
from shoal.market.live.provider import Instance, Listing, NotAvailable, Notice, Order, Quote
from shoal.market.live.settings import CommandSection

_NOT_AVAILABLE = 3
_MOST_BYTES = 16 << 20


class CommandProvider:
    """See `shoal.market.live.provider.Provider`."""

    name = "command"

    def __init__(self, settings: CommandSection, listings: Sequence[Listing], fleet: str, clock: Clock) -> None:
        self._settings, self._listings, self._fleet, self._clock = settings, listings, fleet, clock

    def now(self) -> float:
        return self._clock.now()

    async def open(self) -> None:
        """Nothing is held open."""

    async def close(self) -> None:
        """Nothing is held open."""

    async def quotes(self) -> Sequence[Quote]:
        listed = {one.offer.name: one for one in self._listings}
        answered = await self._call("quotes", {"offers": [one.offer.as_json() for one in self._listings]})
        return [
            Quote(listed[one["offer"]].offer, float(one["usd_per_hour"]), bool(one.get("available", True)))
            for one in answered["quotes"] if one["offer"] in listed
        ]  # fmt: skip

    async def launch(self, order: Order) -> Instance:
        asked = {"token": order.token, "tenant": order.tenant, "node": order.node, **order.offer.as_json(),
                 "usd_per_hour": order.usd_per_hour, "until": order.until}  # fmt: skip
        return _instance((await self._call("launch", asked))["instance"])

    async def extend(self, instance_id: str, until: float) -> None:
        await self._call("extend", {"id": instance_id, "until": until})

    async def terminate(self, instance_id: str) -> None:
        await self._call("terminate", {"id": instance_id})

    async def instances(self) -> Sequence[Instance]:
        return [_instance(one) for one in (await self._call("list", {}))["instances"]]

    async def notices(self) -> Sequence[Notice]:
        answered = await self._call("notices", {})
        return [Notice(str(one["id"]), float(one["ends_at"])) for one in answered["notices"]]

    async def _call(self, what: str, asked: Mapping[str, Any]) -> Any:
        words = (*self._settings.words, what)
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise Unavailable(f"{words[0]} cannot be run: {error.strerror}", where="command.words") from error
        given = json.dumps({"fleet": self._fleet, **asked}).encode()
        try:
            async with asyncio.timeout(self._settings.timeout):
                out, said = await process.communicate(given)
        except TimeoutError:
            raise Unavailable(f"`{what}` took longer than {self._settings.timeout:g} s", where=words[0]) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()
        told = said.decode(errors="replace").strip()[-500:]
        if process.returncode == _NOT_AVAILABLE:
            raise NotAvailable(told or f"`{what}` says that there is none")
        if process.returncode:
            raise Unavailable(f"`{what}` failed with {process.returncode}: {told}", where=words[0])
        try:
            return _read(out)
        except ValueError as error:
            raise Invalid(f"`{what}` answered no JSON object", where=words[0]) from error


def _read(out: bytes) -> Mapping[str, Any]:
    found = json.loads(out[:_MOST_BYTES] or b"{}")
    if not isinstance(found, dict):
        raise ValueError("no object")
    return _Answer(found)


class _Answer(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise Invalid(f"the answer has no `{name}`", where="command")


def _instance(told: Mapping[str, Any]) -> Instance:
    try:
        ended, usd = told.get("ended_at"), told.get("usd")
        return Instance(
            str(told["id"]), str(told["token"]), float(told["launched_at"]), float(told["until"]),
            bool(told.get("ready", True)), None if ended is None else float(ended),
            None if usd is None else float(usd),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise Invalid(f"is no instance: {error!r}", where="command") from error
