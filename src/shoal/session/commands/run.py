"""`shoal run --pty`: a job at this terminal."""

from __future__ import annotations

import os
from typing import Any

from shoal.base.console.command import CommandContext
from shoal.contract.lifecycle import JobState
from shoal.core import Conflict, NotFound, Unavailable
from shoal.session.client.terminal import size_of
from shoal.session.commands import common


def run_at_terminal(context: CommandContext, client: Any, manifest: dict[str, Any], **submitting: Any) -> int:
    """Submit the job with a terminal of this one's size, and stay until it ends; the exit code of its command."""
    _check(client)
    rows, columns = size_of(0) or size_of(1) or (24, 80)
    section = {"rows": rows, "columns": columns}
    if (term := os.environ.get("TERM", "")).replace("-", "").isalnum() and len(term) <= 64:
        section |= {"term": term}  # type: ignore[dict-item]
    extensions = {**manifest.get("extensions", {}), "session": section}
    job = client.submit({**manifest, "extensions": extensions}, **submitting)
    for warning in job.warnings:
        context.note(f"warning: {job.name}: {warning.text}")
    context.note(f"{job.id}  {job.name} ({job.tenant})")
    told, wait_s = "", 1  # a job that waits longer says why
    while True:
        try:
            return common.follow_main(context, client, job.id, 0, shared=False, wait_s=wait_s)
        except Conflict as error:  # it waits
            wait_s = 20
            seen = client.job(job.id)
            if seen.state is JobState.QUEUED and (waiting := client.explain(job.id).summary) != told:
                told = waiting
                context.note(told)
            if seen.terminal:
                return common.finish(context, client, job.id, 0, 0, error)
        except NotFound as error:
            return common.finish(context, client, job.id, 0, 0, error)


def _check(client: Any) -> None:
    """Raises Unavailable where the server's engine gives no terminals: the job would run without one."""
    extra = client.status().model_extra or {}
    found: dict[str, Any] = next((one for one in extra.get("capabilities", ()) if one.get("name") == "sessions"), {})
    if not found.get("available"):
        what = found.get("detail") or "the server has no sessions"
        raise Unavailable(what, where="--pty", hint="without --pty, `shoal run` follows the job's log")
