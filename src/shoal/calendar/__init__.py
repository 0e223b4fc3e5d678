"""Time as people plan it: cron jobs, reservations of devices, and maintenance windows.

It senses the clock, the cluster's snapshot and what was planned. It decides, by pure functions, which cron job is due,
and which waiting job would still run when a window begins. It acts by submitting ordinary jobs of their tenants, by
holding jobs back or keeping them off nodes, and by asking what runs to leave in time.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.calendar.schedule import Due, Missed, Overlap, Schedule, due

__all__ = ["Due", "Missed", "Overlap", "Schedule", "due"]

__getattr__ = on_first_use(globals(), {"schedule": "Due Missed Overlap Schedule due"})
