"""The declaration of this component."""

from shoal.extension import Component

CALENDAR = Component(
    extension="shoal.calendar.live.extension:Calendar",
    commands={
        "cron": "shoal.calendar.commands.cron",
        "reserve": "shoal.calendar.commands.reserve",
        "calendar": "shoal.calendar.commands.plans",
    },
    client={"crons": "shoal.calendar.methods:CronMethods", "calendar": "shoal.calendar.methods:CalendarMethods"},
)
"""Cron jobs, reservations and maintenance windows."""
