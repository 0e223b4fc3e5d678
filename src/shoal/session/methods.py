"""`client.session`: commands in running jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.contract.calls import Call, json_body, path_piece, reads, reads_nothing
from shoal.contract.methods import Namespace, single
from shoal.session.models import OpenSessions, SessionView


def execute(
    job_id: str, command: Sequence[str], *, rank: int = 0, terminal: bool = False, env: Mapping[str, str] | None = None
) -> Call[SessionView]:
    """A command beside a rank of a running job. It begins when its client attaches, and is given up after a minute."""
    asked = {"command": list(command), "rank": rank, "terminal": terminal, "env": dict(env or {})}
    body, headers = json_body(asked)
    path = f"/v1/jobs/{path_piece('job', job_id)}/sessions"
    return Call("POST", path, reads(SessionView), body=body, headers=headers, repeatable=False)


def ssh(job_id: str, key: str, *, rank: int = 0) -> Call[SessionView]:
    """An OpenSSH server beside a rank of a running job, for one connection, which lets this public key in."""
    body, headers = json_body({"ssh_key": key, "rank": rank})
    path = f"/v1/jobs/{path_piece('job', job_id)}/sessions"
    return Call("POST", path, reads(SessionView), body=body, headers=headers, repeatable=False)


def opened(*, job: str | None = None, tenant: str | None = None) -> Call[OpenSessions]:
    """The sessions that are open in jobs, or in the job with this id: of those that the caller may enter."""
    return Call("GET", "/v1/sessions", reads(OpenSessions), {"job": job, "tenant": tenant})


def end(job_id: str, session: str, *, rank: int = 0) -> Call[None]:
    """End a session: what runs in it is asked to end (SIGHUP), and killed ten seconds later."""
    path = f"/v1/jobs/{path_piece('job', job_id)}/sessions/{path_piece('session', session)}"
    return Call("DELETE", path, reads_nothing, {"rank": rank}, repeatable=False)


class Session(Namespace):
    """The methods of `client.session`."""

    execute = single(execute)
    list = single(opened)
    end = single(end)
    ssh = single(ssh)
