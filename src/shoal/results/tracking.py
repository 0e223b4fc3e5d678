"""Environment of jobs for the team's tracking servers, so that an unmodified script reports there. Pure.

MLflow takes tags of a run from `MLFLOW_RUN_CONTEXT`. Weights & Biases takes the id of a run from `WANDB_RUN_ID`, and
with `WANDB_RESUME=allow` the next attempt of a job goes on with the same run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote

JOB_TAG = "shoal.job"


@dataclass(frozen=True, slots=True)
class Servers:
    """Their addresses; empty: the team has none."""

    mlflow: str = ""
    wandb: str = ""
    wandb_entity: str = ""
    shoal: str = ""
    """Where people reach this server, for the link from a run to its job."""


def variables(servers: Servers, *, job: str, name: str, tenant: str, attempt: int, project: str) -> dict[str, str]:
    """Of a job's environment, each unless the job sets it itself."""
    found: dict[str, str] = {}
    link = f"{servers.shoal.rstrip('/')}/v1/jobs/{quote(job)}" if servers.shoal else ""
    if servers.mlflow:
        tags = {JOB_TAG: job, "shoal.tenant": tenant, "shoal.attempt": str(attempt), "mlflow.runName": name}
        found |= {
            "MLFLOW_TRACKING_URI": servers.mlflow,
            "MLFLOW_EXPERIMENT_NAME": project,
            "MLFLOW_RUN_CONTEXT": json.dumps({**tags, "shoal.url": link} if link else tags),
        }
    if servers.wandb:
        found |= {
            "WANDB_BASE_URL": servers.wandb, "WANDB_PROJECT": project, "WANDB_NAME": name, "WANDB_RUN_ID": job,
            "WANDB_RESUME": "allow",
        }  # fmt: skip
        found |= {"WANDB_ENTITY": servers.wandb_entity} if servers.wandb_entity else {}
        found |= {"WANDB_NOTES": link} if link else {}
    return found


def wandb_page(servers: Servers, *, job: str, project: str) -> str | None:
    """Of the job's run; None where it cannot be told."""
    if not servers.wandb or not servers.wandb_entity:
        return None
    base = servers.wandb.rstrip("/").replace("https://api.wandb.ai", "https://wandb.ai")
    return f"{base}/{quote(servers.wandb_entity)}/{quote(project)}/runs/{quote(job)}"


def mlflow_page(servers: Servers, experiment: str, run: str) -> str:
    return f"{servers.mlflow.rstrip('/')}/#/experiments/{quote(experiment, safe='')}/runs/{quote(run, safe='')}"
