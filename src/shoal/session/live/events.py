"""The kinds of events that sessions write."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class SessionEvent(EventKinds):
    """Who was in which job."""

    EXEC = "session.exec", "A command was started beside a rank of a job; `data` has the program, not its words."
    ATTACHED = "session.attached", "Somebody attached to a session of a job, or came back to it."
    ENDED = "session.ended", "Somebody asked a session to end."
