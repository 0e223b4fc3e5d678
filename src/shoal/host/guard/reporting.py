"""Reports of groups about their work, as the guard's configuration says where: lines of `shoal.train`, or a gateway's
metrics. Files are read at each tick; gateways are asked in a thread, so that a slow one holds nothing up."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from shoal.host.guard.config import GroupConfig, ReportsConfig
from shoal.host.linux.fs import LINUX
from shoal.host.linux.members import NONE_FOUND, Found, Process
from shoal.host.sensors.reports import ReportLines, Work, gateway_work

ASK_EVERY_S = 0.5
_ASK_TIMEOUT_S = 2.0
_MOST_BYTES = 32 << 20

Ask = Callable[[str, Path | None], str]
"""The text at a URL, opened by the token in a file. Raises OSError, HTTPException, ValueError."""


class Reporting:
    """Work by group. `exchange` says of which groups, before and between calls."""

    def __init__(
        self,
        groups: Iterable[GroupConfig] = (),
        *,
        ask: Ask | None = None,
        wall: Callable[[], float] = time.time,
        every_s: float = ASK_EVERY_S,
    ) -> None:
        self._ask, self._wall, self._every_s = ask or fetch, wall, every_s
        self._told: dict[str, ReportsConfig] = {}
        self._lines: dict[str, tuple[ReportLines, CpuTime]] = {}
        self._gateways: dict[tuple[str, Path | None], _Gateway] = {}
        self.exchange(groups)

    def exchange(self, groups: Iterable[GroupConfig]) -> None:
        """These groups from now on; what was read of those that stay is kept."""
        told = {one.name: one.reports for one in groups if one.reports is not None}
        for name in [name for name in self._lines if told.get(name) != self._told[name]]:
            del self._lines[name]
        wanted = {(one.gateway, one.token_file) for one in told.values() if one.gateway}
        for address in self._gateways.keys() - wanted:
            self._gateways.pop(address).close()
        for address in wanted - self._gateways.keys():
            self._gateways[address] = _Gateway(partial(self._ask, *address), self._every_s)
        for name, one in told.items():
            if one.lines is not None and name not in self._lines:
                spent = CpuTime()
                self._lines[name] = ReportLines(one.lines, spent, wall=self._wall), spent
        self._told = told

    def work(self, now: float, found: Mapping[str, Found]) -> Mapping[str, Work]:
        """What each group that reports has done by now. `found` are the groups' processes."""
        done: dict[str, Work] = {}
        if not self._told:
            return done
        for name, (lines, spent) in self._lines.items():
            spent.processes = found.get(name, NONE_FOUND).processes
            one = lines.work(now)
            if one is not None:
                done[name] = one
        for name, told in self._told.items():
            if told.gateway:
                known = self._gateways[told.gateway, told.token_file].work
                mine = [known[told.tenant, model] for model in sorted(told.models) if (told.tenant, model) in known]
                if mine:
                    done[name] = Work(sum(one.units for one in mine), sum(one.busy_s for one in mine), mine[0].at)
        return done

    def close(self) -> None:
        self.exchange(())


class CpuTime:
    """CPU seconds that `processes` have used so far, with those that have left: it never goes back."""

    def __init__(self) -> None:
        self.processes: frozenset[Process] = frozenset()
        self._known: dict[Process, float] = {}
        self._left_s = 0.0

    def __call__(self) -> float | None:
        """None before there is a process."""
        for gone in self._known.keys() - self.processes:
            self._left_s += self._known.pop(gone)
        for process in self.processes:
            with suppress(OSError):  # it has ended
                self._known[process] = LINUX.cpu_s(process.pid)
        return self._left_s + sum(self._known.values()) if self._known or self._left_s else None


class _Gateway:
    """`work` is what a gateway said last. One that does not answer is asked again."""

    def __init__(self, ask: Callable[[], str], every_s: float) -> None:
        self.work: Mapping[tuple[str, str], Work] = {}
        self._ask, self._every_s = ask, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard-reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Its thread ends by itself, after the request that is under way."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError):
                text = self._ask()
                self.work = gateway_work(text, time.monotonic())
            self._ended.wait(self._every_s)


def fetch(url: str, token_file: Path | None) -> str:
    """By `http.client`, which follows no redirect and asks no proxy: the token goes nowhere else."""
    parts = urlsplit(url)
    headers = {} if token_file is None else {"Authorization": f"Bearer {token_file.read_text().strip()}"}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_ASK_TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/", headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ValueError(f"{url} answers {answer.status}")
        return answer.read(_MOST_BYTES).decode()
    finally:
        connection.close()
