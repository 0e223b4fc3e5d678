"""The engine's own section of the server's settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shoal.engine.pool import AHEAD


class SlurmSettings(BaseModel):
    """How the server uses its Slurm cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: str = Field("", description="partition for all jobs [the cluster's default one]")
    delegate: bool = Field(
        True, description="may Slurm pick nodes? If not, Shoal does, which needs a partition that nothing else uses"
    )
    ahead: float = Field(
        AHEAD, ge=0, le=10,
        description="part of the pool that is handed to Slurm beyond what can run, at least; while jobs are short, "
        "about two seconds' worth of them is; 0: never any",
    )  # fmt: skip
    together_s: int = Field(
        30, ge=0, le=59,
        description="seconds for which a gang waits for nodes under one switch, where Slurm knows the switches; "
        "after them it takes what is free",
    )  # fmt: skip
    account: str = Field("", description="Slurm account of a job; `{tenant}` stands for its tenant [Slurm's default]")
    qos: str = Field("", description="Slurm QOS of a job; `{tenant}` stands for its tenant [Slurm's default]")
    bundles: str = Field(
        "", pattern=r"^(/[^\x00\n]*)?$",
        description="folder of OCI bundles that every node sees: a job with the image NAME:TAG runs in "
        "FOLDER/NAME:TAG, by Slurm's `--container`",
    )  # fmt: skip
    lease_s: float = Field(
        15.0, ge=2, le=3600,
        description="seconds without an answer of the shared directory after which a rank ends itself; a job that "
        "Slurm gave up is started again after them",
    )  # fmt: skip
