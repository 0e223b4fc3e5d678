"""Keeps the gateway's accounts: what each tenant used is counted at once, written down and billed by the interval."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from shoal.core import Money, PriorityClass
from shoal.serve.contract import GatewayConfig, UsageTotal
from shoal.serve.usage import OpenInterval, UsageRecord

log = logging.getLogger("shoal.serve")

INTERVAL_S = 10.0
_TAIL_BYTES = 1 << 20
_MOST_UNWRITTEN = 16 << 20


class Meter:
    """Appends a line for each interval in which anything was used or billed to `file`, if there is one. A line holds
    the totals up to then as well, so that they go on from the last one."""

    def __init__(
        self, config: GatewayConfig, file: Path | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._interval = OpenInterval(config.price_per_hour, config.slots, clock(), _reserved(config))
        self._totals: dict[str, UsageTotal] = {}
        self._due = clock() + INTERVAL_S
        self._file: int | None = None
        self._unwritten = bytearray()
        if file is not None:
            self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._restore(file)

    def use(self, tenant: str, slot_s: float) -> None:
        self._interval.use(tenant, slot_s)

    def overhead(self, tenant: str, slot_s: float) -> None:
        self._interval.overhead(tenant, slot_s)

    def follow(self, config: GatewayConfig) -> None:
        """A changed price or reservation counts from now on. The slots are those of the beginning."""
        reserved = _reserved(config)
        if (self._interval.price_per_hour, self._interval.reserved) == (config.price_per_hour, reserved):
            return
        self._close()
        if self._interval.price_per_hour == config.price_per_hour:
            self._interval.reserved = reserved
        else:
            self._interval = OpenInterval(config.price_per_hour, self._interval.slots, self._interval.opened, reserved)

    def close_interval(self) -> None:
        """Write the interval down, if it is over."""
        if self._clock() >= self._due:
            self._close()

    def totals(self) -> tuple[UsageTotal, ...]:
        """Of all closed intervals."""
        return tuple(total for _, total in sorted(self._totals.items()) if total.tenant)

    def close(self) -> None:
        self._close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _close(self) -> None:
        record = self._interval.close(self._clock())
        self._due = record.end + INTERVAL_S
        self._count(record)
        if record.bill.micro_usd or any(share.use_s or share.overhead_s for share in record.shares):
            totals = {one.tenant: [one.device_s, one.cost.micro_usd] for one in self._totals.values()}
            self._unwritten += orjson.dumps({**record.as_json(), "totals": totals}) + b"\n"
        self._write()

    def _count(self, record: UsageRecord) -> None:
        for share in record.shares:
            known = self._totals.get(share.tenant) or UsageTotal(share.tenant, 0.0, Money(0))
            device_s = known.device_s + share.use_s + share.overhead_s
            self._totals[share.tenant] = UsageTotal(share.tenant, device_s, known.cost + share.cost)

    def _write(self) -> None:
        """As much as the disk takes; the rest is tried again with the next interval."""
        if self._file is None:
            return
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._file, self._unwritten)]
        except OSError as error:
            log.error("the usage file cannot be written, %d bytes wait: %s", len(self._unwritten), error)
            if len(self._unwritten) > _MOST_UNWRITTEN:
                log.error("these are too many: they are dropped; the totals are kept")
                self._unwritten[:] = b"\n"

    def _restore(self, file: Path) -> None:
        """From the last line that can be read. One that was torn when a gateway was killed is ended first."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        if tail and not tail.endswith(b"\n"):
            self._unwritten += b"\n"
        for line in reversed(tail.splitlines()):
            totals = _totals_in(line)
            if totals is not None:
                self._totals = totals
                return
            log.warning("a line of the usage file cannot be read, and is left out: %.80r", line)
        if size:
            log.error("no line at the end of the usage file can be read: the totals begin anew (%s)", file)


def _reserved(config: GatewayConfig) -> dict[str, int]:
    """How idle time is shared: guaranteed services reserve their replicas' slots. If no tenant has reserved any,
    all tenants share by weight."""
    newest = {one.id: one.spec for one in sorted(config.services, key=lambda one: one.generation)}
    reserved: dict[str, int] = {}
    for spec in newest.values():
        if spec.priority_class is PriorityClass.GUARANTEED and spec.replicas:
            wide = max(model.threads for model in spec.models) * spec.replicas
            reserved[spec.tenant] = reserved.get(spec.tenant, 0) + wide * 1000
    return reserved or {tenant.name: round(tenant.weight * 1000) for tenant in config.tenants}


def _totals_in(line: bytes) -> dict[str, UsageTotal] | None:
    try:
        found: dict[str, Any] = orjson.loads(line)["totals"]
        return {
            tenant: UsageTotal(tenant, float(device_s), Money(int(micro_usd)))
            for tenant, (device_s, micro_usd) in found.items()
        }
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
