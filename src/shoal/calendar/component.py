"""The declaration of this component."""

from shoal.extension import Component

CALENDAR = Component(
    extension="shoal.calendar.live.extension:Calendar",
    commands={"cron": "shoal.calendar.commands.cron"},
    client={"crons": "shoal.calendar.methods:Crons"},
)
"""Cron jobs, reservations and maintenance windows."""
