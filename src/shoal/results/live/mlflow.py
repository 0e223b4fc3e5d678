"""Asks an MLflow server for the runs of a job, by its REST interface."""

from __future__ import annotations

from typing import Any

import httpx

from shoal.results.tracking import JOB_TAG

_WAIT_S = 10.0
_MOST = 20
_LARGEST = 1 << 20


def find_runs(server: str, experiment: str, job: str) -> tuple[list[tuple[str, str]], str]:
    """Experiment and id of each run with the job's tag, and what went wrong, if anything did. Redirects are not
    followed. Blocks."""
    base = f"{server.rstrip('/')}/api/2.0/mlflow"
    try:
        with httpx.Client(timeout=_WAIT_S, follow_redirects=False) as client:
            named = _read(client, "GET", f"{base}/experiments/get-by-name", params={"experiment_name": experiment})
            if named is None:
                return [], ""
            number = str(named["experiment"]["experiment_id"])
            asked = {"experiment_ids": [number], "filter": f"tags.`{JOB_TAG}` = '{job}'", "max_results": _MOST}
            found = _read(client, "POST", f"{base}/runs/search", json=asked) or {}
            return [(number, str(one["info"]["run_id"])) for one in found.get("runs", ())], ""
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return [], f"{type(problem).__name__}: {problem}"[:300]


def _read(client: httpx.Client, method: str, url: str, **asked: Any) -> Any:
    """What it answers; None where there is no such thing."""
    with client.stream(method, url, **asked) as answer:
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _LARGEST:
                raise ValueError("the answer is too large")
        answer.raise_for_status()
        if answer.is_redirect:
            raise ValueError("the server leads elsewhere")
    return httpx.Response(answer.status_code, content=bytes(body)).json()
