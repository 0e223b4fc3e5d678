"""`client.session`: commands in running jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.contract.calls import Call, json_body, path_piece, reads
from shoal.contract.methods import Namespace, single
from shoal.session.models import SessionView


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


class Session(Namespace):
    """The methods of `client.session`."""

    execute = single(execute)
    ssh = single(ssh)
