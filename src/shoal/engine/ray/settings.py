"""The engine's own section of the server's settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shoal.engine.pool import AHEAD


class RaySettings(BaseModel):
    """How the server uses its Ray cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(
        "", description="HOST:PORT of the cluster's head [$RAY_ADDRESS, else the cluster that this machine is part of]"
    )
    python: str = Field("", description="Python that has Ray, in the cluster's versions of both [the server's own]")
    ahead: float = Field(
        AHEAD, ge=0, le=10,
        description="part of the pool that is handed to Ray beyond what can run, at least; while jobs are short, "
        "about two seconds' worth of them is; 0: never any",
    )  # fmt: skip
    lease_s: float = Field(
        15.0, ge=2, le=3600,
        description="seconds without an answer of the shared directory after which a rank ends itself; a job that "
        "Ray gave up is started again after them",
    )  # fmt: skip
