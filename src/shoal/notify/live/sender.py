"""Sends from the outbox: several deliveries at a time, each channel's one by one, with back-off until they are given
up."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

from shoal.base.loops import Defects, Turns
from shoal.core import Invalid
from shoal.extension import Server
from shoal.notify.live.book import Book
from shoal.notify.live.outbox import Outbox
from shoal.notify.live.reader import MAIL, MISSING
from shoal.notify.live.settings import NotifySection
from shoal.notify.policy import words
from shoal.notify.policy.batches import MOST_OPEN
from shoal.notify.policy.retry import Bounds, Open, back_off_s, choose
from shoal.notify.policy.times import is_due
from shoal.notify.records import Delivery, Kind, State, Subscription
from shoal.notify.send.addresses import check_mail_address, read_networks
from shoal.notify.send.outcome import Outcome
from shoal.notify.send.signing import headers, secret_of

if TYPE_CHECKING:
    from shoal.notify.send.webhook import Webhooks

log = structlog.get_logger("shoal.notify")

_PERIOD_S = 30.0
_SOONEST_S = 0.02
_OF_PLANE = 8
"""Deliveries of a plane that are under way at a time: it is a tenant of the shared server."""


class Sender:
    def __init__(self, server: Server, settings: NotifySection, book: Book, outbox: Outbox) -> None:
        self._server = server
        self._settings = settings
        self._book = book
        self._outbox = outbox
        self._inward = read_networks(settings.inward, "notify.inward")
        self._domains = frozenset(settings.mail_domains.lower().replace(",", " ").split())
        self.door = settings.door()
        at_once = settings.at_once if server.plane is None else min(settings.at_once, _OF_PLANE)
        self._bounds = Bounds(all=at_once)
        self._resting = False
        self._webhooks: Webhooks | None = None
        self._names: ThreadPoolExecutor | None = None
        self._turns = Turns(log, "news could not be sent", server.on_fatal)
        self._defects = Defects(log)
        self._under_way: dict[str, tuple[Open, asyncio.Task[None]]] = {}
        self._some = asyncio.Event()

    def wake(self) -> None:
        self._some.set()

    def idle(self) -> bool:
        """Nothing is due, held back or under way."""
        return self._resting and not self._some.is_set()

    def check_mail(self, address: str) -> None:
        """Raises Invalid where no mail can go there."""
        if self.door is None:
            raise Invalid("this server sends no mail", where="address", hint="its admin sets notify.smtp_host")
        check_mail_address(address, "address", self._domains)

    def secret(self, one: Subscription) -> str:
        """What signs a webhook's requests: it follows from the server's key, and is stored nowhere."""
        return secret_of(self._server.derive_secret(f"notify webhook {one.id}"))

    # --- the loop ---

    async def run(self) -> None:
        pause_s = 0.0
        while True:
            self._resting = False
            self._some.clear()
            with self._turns.turn() as turn:
                pause_s = await self._turn()
            if turn.over:
                return
            try:
                async with asyncio.timeout(1.0 if turn.held_up else pause_s):
                    await self._some.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """What is under way is sent again by the next server, under the same keys."""
        tasks = [task for _, task in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._names is not None:
            self._names.shutdown(wait=False, cancel_futures=True)

    async def _turn(self) -> float:
        """Returns after how many seconds there may be something to do."""
        now = self._server.clock.now()
        waiting, due = await asyncio.to_thread(self._look)
        count = Counter(one.channel for one in waiting)
        due = {channel: at for channel, at in due.items() if count[channel] < MOST_OPEN}
        if ready := [channel for channel, at in due.items() if is_due(at, now)]:
            digests = {one.id for one in self._book if one.schedule.digests}
            await self._outbox.form(ready, now, digests)
            waiting = await asyncio.to_thread(self._outbox.waiting)
        left = [one for one in waiting if one.id not in self._under_way]
        for one in choose(left, [one for one, _ in self._under_way.values()], now, self._bounds):
            self._under_way[one.id] = one, asyncio.create_task(self._try(one), name=f"news {one.id}")
        self._resting = not waiting and not due and not self._under_way
        moments = [at - now for channel, at in due.items() if channel not in ready]
        moments += [one.next_at - now for one in left if one.next_at > now]
        return min([_PERIOD_S, *(max(_SOONEST_S, one) for one in moments)])

    def _look(self) -> tuple[Sequence[Open], Mapping[str, float]]:
        return self._outbox.waiting(), self._outbox.due()

    async def _try(self, one: Open) -> None:
        try:
            delivery = await asyncio.to_thread(self._outbox.delivery, one.id)
            if delivery is None or delivery.state is not State.WAITING:
                return
            await self._note(delivery, await self._send(delivery))
        except Exception as error:  # of one delivery: the others go on, and it is sent again
            self._defects.note("a delivery failed by a defect", error, delivery=one.id)
            await asyncio.sleep(1.0)
        finally:
            self._under_way.pop(one.id, None)
            self.wake()

    async def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        now, attempts = self._server.clock.now(), delivery.attempts + 1
        if not outcome.error:
            await self._outbox.tried(delivery.id, State.SENT, attempts=attempts, next_at=now, error="", ended_at=now)
            return
        over = outcome.lasting or attempts >= self._settings.attempts
        log.warning("news were not delivered", delivery=delivery.id, attempt=attempts, error=outcome.error, over=over)
        pause_s = back_off_s(attempts, delivery.id, self._settings.retry, outcome.retry_after_s)
        await self._outbox.tried(
            delivery.id, State.GAVE_UP if over else State.WAITING, attempts=attempts, next_at=now + pause_s,
            error=outcome.error, ended_at=now if over else None,
        )  # fmt: skip

    # --- the ways ---

    async def _send(self, delivery: Delivery) -> Outcome:
        channel = delivery.channel
        if channel.startswith(MISSING):
            name = channel.rpartition(":")[2]
            return Outcome(f"there is no subscription {name!r}", lasting=True)
        if channel.startswith(MAIL):
            return await self._mail(channel.split(":", 2)[2], delivery)
        one = self._book.get(channel)
        if one is None:
            return Outcome("the subscription was removed", lasting=True)
        if one.target.kind is Kind.MAIL:
            return await self._mail(one.target.address, delivery)
        body = words.slack(delivery) if one.target.kind is Kind.SLACK else words.body(delivery)
        signed = headers(self.secret(one), delivery.id, self._server.clock.now(), body)
        if one.target.kind is Kind.SLACK:
            signed = {"idempotency-key": delivery.id}
        return await self._posts().post(one.target.address, body, signed)

    async def _mail(self, address: str, delivery: Delivery) -> Outcome:
        try:
            self.check_mail(address)
        except Invalid as error:
            return Outcome(error.what, lasting=True)
        from shoal.notify.send.mail import send

        assert self.door is not None
        return await send(self.door, address, delivery)

    def _posts(self) -> Webhooks:
        if self._webhooks is None:
            from shoal.notify.send.webhook import Webhooks

            self._names = ThreadPoolExecutor(self._bounds.all, thread_name_prefix="news")
            self._webhooks = Webhooks(
                self._inward, self._settings.timeout, find=self._find, authorities=self._settings.authorities_file
            )
        return self._webhooks

    async def _find(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host. In threads of its own: a resolver that hangs takes none of the server's."""

        return await asyncio.get_running_loop().run_in_executor(self._names, find_addresses, host, port)


def find_addresses(host: str, port: int) -> list[str]:
    """What the system says of a name. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))
