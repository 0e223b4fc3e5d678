"""The kinds of events that the server writes, each with what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from shoal.contract.lifecycle import Stop


class EventKinds(StrEnum):
    """Kinds of events, each with what it means. An extension may have kinds of its own."""

    about: str
    """When it is written, for the reference page."""

    def __new__(cls, value: str, about: str) -> Self:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.about = about
        return kind


class EventKind(EventKinds):
    """The kinds that the control plane writes."""

    JOB_SUBMITTED = "job.submitted", "A job was accepted."
    JOB_STATE = "job.state", "A job stepped from one state to another; `data` says with which attempt and why."
    JOB_PREEMPT_REQUESTED = "job.preempt-requested", "A job was asked to make room for a guaranteed one."
    JOB_SUSPEND_REQUESTED = "job.suspend-requested", "A job was asked to stop and to be resumable."
    JOB_CANCEL_REQUESTED = "job.cancel-requested", "A job was asked to end."
    JOB_MAX_RUNTIME_REQUESTED = (
        "job.max-runtime-requested",
        "A job has run for its `max_runtime` and was asked to end.",
    )
    JOB_DEADLINE_REQUESTED = "job.deadline-requested", "A job was asked to end, for its `deadline` has passed."
    JOB_NODE_LOST_REQUESTED = "job.node-lost-requested", "A job was ended, for a node that it ran on is gone."
    JOB_WAITING = "job.waiting", "The reason for which a job waits is another one now."
    ATTEMPT_ADOPTED = "attempt.adopted", "A server took over a running attempt."
    TENANT_CREATED = "tenant.created", "A tenant was created."
    TENANT_CHANGED = "tenant.changed", "A tenant's weight, quota or rights were changed."
    TOKEN_CREATED = "token.created", "A token was made."
    TOKEN_REVOKED = "token.revoked", "A token was revoked."
    SECRET_SET = "secret.set", "A secret was stored; its value is in no event."
    SECRET_DELETED = "secret.deleted", "A secret was deleted."
    BUNDLE_ADDED = "bundle.added", "An archive of working files was stored."
    NODE_JOINED = "node.joined", "A node came."
    NODE_LEFT = "node.left", "A node is gone."
    NODE_CHANGED = "node.changed", "What a node has was changed."
    NODE_CLOSED = "node.closed", "A node takes no new work."
    NODE_OPENED = "node.opened", "A node takes new work again."
    NODE_DRAINED = "node.drained", "An administrator gave a node no new work."
    NODE_UNDRAINED = "node.undrained", "An administrator gave a drained node work again."
    GC_REMOVED = "gc.removed", "Records, files or archives were removed because of their age or number."
    CONTROL_OPENED = "control.opened", "A server began its work."
    CONTROL_LEASE_TAKEN = "control.lease-taken", "A server took the lease of the database."
    CONTROL_RESTORED = "control.restored", "A backup was restored."
    CONTROL_DATA_LOSS_ACCEPTED = (
        "control.data-loss-accepted",
        "A server was started on a database that had lost something.",
    )
    RECONCILE_PROCESS_KILLED = "reconcile.process-killed", "A process that belongs to no gang was killed."
    RECONCILE_ORPHAN_REMOVED = "reconcile.orphan-removed", "A gang that belongs to no job was removed."
    RECONCILE_RUNNER_RESTARTED = "reconcile.runner-restarted", "A job whose attempt had no runner has one again."
    RECONCILE_GANG_VANISHED = "reconcile.gang-vanished", "A gang that should run was not there."


def stop_requested(stop: Stop) -> EventKind:
    """Of a job that was asked to end for this reason."""
    return EventKind[f"JOB_{stop.name}_REQUESTED"]
