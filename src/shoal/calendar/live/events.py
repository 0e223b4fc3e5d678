"""The kinds of events that the calendar writes."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class CalendarEvent(EventKinds):
    """What was planned, and what came of it."""

    CREATED = "cron.created", "A cron job was made."
    CHANGED = "cron.changed", "A cron job was changed, suspended or resumed."
    REMOVED = "cron.removed", "A cron job was removed."
    FIRED = "cron.fired", "A cron job submitted a job; `data` has the time that it was due, and how many it missed."
    SKIPPED = "cron.skipped", "A time of a cron job got no job: that of the time before was not over."
    MISSED = "cron.missed", "Times of a cron job passed while no server ran, and get no job."
    PLANNED = "calendar.planned", "A reservation or a maintenance window was made."
    UNPLANNED = "calendar.unplanned", "A reservation or a maintenance window was removed."
    REFUSED = "cron.refused", "The job of a cron job was not accepted; `cause` says why."
