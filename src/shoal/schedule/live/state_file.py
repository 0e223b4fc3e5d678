"""State of scheduling that outlives a restart of the server: deficits of jobs, and measured throughputs.

Losing it costs fairness and knowledge for a while, never correctness: what runs and what waits is in the database. So
the file is replaced whole but not flushed, and one that cannot be read is left aside.
"""

from __future__ import annotations

import json
from pathlib import Path

import structlog

from shoal.base.files import write_whole
from shoal.core import Invalid, ShoalError, Speeds
from shoal.schedule.oracle import Oracle
from shoal.schedule.rounds import State

log = structlog.get_logger("shoal.scheduling")

VERSION = 3
NOTHING = State()


def save(path: Path, state: State, oracle: Oracle) -> None:
    """Whole or not at all; a full disk is logged and changes nothing."""
    text = json.dumps({"version": VERSION, "rounds": state.as_json(), "oracle": oracle.as_json()})
    try:
        write_whole(path, text, durable=False)
    except OSError as error:
        log.warning("the memory of scheduling was not kept", file=str(path), error=str(error))


def load(path: Path | None, prior: Speeds | None = None) -> tuple[State, Oracle]:
    """What was saved; nothing, with a line in the log, where that cannot be read. The oracle asks `prior`."""
    if path is None:
        return NOTHING, Oracle(prior)
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise Invalid("another version wrote it", where=str(path))
        return State.from_json(found["rounds"]), Oracle.from_json(found["oracle"], prior)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ShoalError) as error:
        log.warning("the memory of scheduling cannot be read, and starts anew", file=str(path), error=str(error))
    return NOTHING, Oracle(prior)
