"""News: jobs that end, fail or wait too long, services in trouble, budgets nearly used up and lost nodes are told to
people and programs by mail, webhook or Slack.

Sense: the log of events, the waiting jobs, the answers to `shoal.core.Budgets`. Decide (`policy`, pure): what an event
tells and to whom, when it is due by quiet hours and digests, when a failed delivery is tried again. Act (`send`): SMTP
and HTTP. News are written to an outbox in one transaction with the position in the log of events (`live.outbox`), as
transactional outboxes do it. So none is lost or doubled by a crash, and a repeated delivery has the key of the first.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.notify.policy.retry import back_off_s
    from shoal.notify.policy.times import Schedule, due_at

__all__ = ["Schedule", "back_off_s", "due_at"]

__getattr__ = on_first_use(globals(), {
    "policy.retry": "back_off_s",
    "policy.times": "Schedule due_at",
})  # fmt: skip
