"""The database of a home, as its server takes control of it: at a start, or once the server before is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.base.home import Home
from shoal.contract.events import EventKind
from shoal.contract.records import NewEvent
from shoal.control.home import recovery, upgrade
from shoal.core import Conflict, Invalid, Unavailable
from shoal.store import Store, Tables, open_store

_LEASE_WAIT_S = 5.0
_STANDBY_TURN_S = 1.0


def check_standby(url: str) -> None:
    """Raises Invalid for a database that a second server cannot wait for."""
    if url.startswith("sqlite"):
        raise Invalid(
            "a standby needs PostgreSQL: SQLite's database is a file of one machine, which ends with that machine",
            where="--standby",
            hint="give both servers --db postgresql://..., or let a service manager start the one server again",
        )


def take_over(url: str, home: Home, tables: Sequence[Tables], standing_by: Callable[[str], None]) -> Store:
    """The database under our control, once no other server controls it. Blocks."""
    store = open_store(url, tables=tables)
    told = False
    try:
        while True:
            try:
                store.acquire(f"shoal-{os.getpid()}", wait_s=_STANDBY_TURN_S)
                break
            except Conflict as held:
                if not told:
                    standing_by(held.what)
                told = True
            except Unavailable:
                if not told:
                    raise
                time.sleep(_STANDBY_TURN_S)  # the database is away for the present server as well
        recovery.check_gangs(home, store)
    except BaseException:
        store.close()
        raise
    return store


def open_whole(url: str, home: Home, accept_data_loss: bool, tables: Sequence[Tables]) -> Store:
    """The home's database under our control. Raises Unavailable where it lost something and that is not accepted."""
    holder = f"shoal-{os.getpid()}"
    evidence: Path | None = None
    what = ""
    try:
        recovery.check_database_of(home, url)
    except Unavailable as loss:
        if not accept_data_loss:
            raise
        what, evidence = loss.what, recovery.keep_evidence(home, url)
    with upgrade.way_back(home):
        upgrade.back_up_before(home, url, tables)
        store = open_store(url, tables=tables)
    try:
        try:
            recovery.check_gangs(home, store)
        except Unavailable as loss:
            if not accept_data_loss:
                raise
            what = f"{what}; {loss.what}" if what else loss.what
            evidence = evidence or recovery.keep_evidence(home, url)
        store.acquire(holder, wait_s=_LEASE_WAIT_S)
        if what:
            store.record_now(
                NewEvent(
                    time.time(), EventKind.CONTROL_DATA_LOSS_ACCEPTED, "admin", what, data={"evidence": str(evidence)}
                )
            )
    except BaseException:
        store.close()
        raise
    return store
