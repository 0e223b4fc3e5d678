"""`shoal run --pty`: a job at this terminal."""

from __future__ import annotations

import json
import os
from typing import Any

from shoal.base.console.command import CommandContext
from shoal.contract.lifecycle import JobState
from shoal.core import Conflict, NotFound, ShoalError
from shoal.session.client.connection import post
from shoal.session.client.terminal import size_of
from shoal.session.commands import common


def run_at_terminal(context: CommandContext, client: Any, manifest: dict[str, Any], **submitting: Any) -> int:
    """Submit the job with a terminal of this one's size, and stay until it ends; the exit code of its command."""
    rows, columns = size_of(0) or size_of(1) or (24, 80)
    section = {"rows": rows, "columns": columns}
    if (term := os.environ.get("TERM", "")).replace("-", "").isalnum() and len(term) <= 64:
        section |= {"term": term}  # type: ignore[dict-item]
    extensions = {**manifest.get("extensions", {}), "session": section}
    job = _submitted(client, {**manifest, "extensions": extensions}, **submitting)
    for warning in job["warnings"]:
        context.note(f"warning: {job['name']}: {warning['text']}")
    context.note(f"{job['id']}  {job['name']} ({job['tenant']})")
    told, wait_s = "", 1  # a job that waits longer says why
    while True:
        try:
            return common.follow_main(context, client, job["id"], 0, shared=False, wait_s=wait_s)
        except Conflict as error:  # it waits
            wait_s = 20
            seen = client.job(job["id"])
            if seen.state is JobState.QUEUED and (waiting := client.explain(job["id"]).summary) != told:
                told = waiting
                context.note(told)
            if seen.terminal:
                return common.finish(context, client, job["id"], 0, 0, error)
        except NotFound as error:
            return common.finish(context, client, job["id"], 0, 0, error)


def _submitted(
    client: Any, manifest: dict[str, Any], *, tenant: str | None = None, idempotency_key: str | None = None
) -> dict[str, Any]:
    """The job as the server describes it. One request without the client's libraries, which take longer to load than a
    session takes to start; whatever is wrong with that is left to the client, which sends the same once more."""
    key = idempotency_key or os.urandom(16).hex()
    if not manifest.get("files") and key.isascii() and key.isprintable():
        headers = ["Content-Type: application/yaml", f"Idempotency-Key: {key}"]
        params: dict[str, object] = {} if tenant is None else {"tenant": tenant}
        try:
            answer = post(client.locate(), "/v1/jobs", json.dumps(manifest).encode(), headers, params)
            return {"warnings": [], **{name: answer[name] for name in ("id", "name", "tenant")}, **answer}
        except (ShoalError, KeyError, TypeError):
            pass
    client.status()  # an absent server is waited for, and told, before anything is read
    found: dict[str, Any] = client.submit(manifest, tenant=tenant, idempotency_key=key).model_dump(mode="json")
    return found
