"""The settings of the cache, and a job's section of its manifest."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from shoal.contract.manifest.quantities import read_size, write_size
from shoal.contract.manifest.values import Memory, Period
from shoal.extension import Section

Bytes = Annotated[int, BeforeValidator(read_size), PlainSerializer(write_size, return_type=str, when_used="json")]


class CacheSection(Section):
    """A fast disk that tenants share."""

    root: str = Field("", description="the directory on the fast disk")
    size: Bytes = Field(10 << 30, description="bytes of the disk that the cache may take, such as 200GiB")
    files: int = Field(1_000_000, ge=1, description="files that it may have")
    keep_free: Bytes = Field(1 << 30, description="bytes of the disk that stay free for others")
    round: Period = Field(10.0, description="from one decision to the next")
    recheck: Period = Field(60.0, description="for how long a source's word on a tenant's rights holds")
    fill_rate: int = Field(0, ge=0, description="bytes a second that are fetched from sources at most; 0: no limit")
    chunk: Bytes = Field(
        64 << 20, description="larger objects are kept in pieces of this, and are shown to jobs through FUSE or copied"
    )
    wait: Period = Field(30.0, description="how long a job waits for the first part of an input with `cached: true`")
    mount: Literal["large", "always", "never"] = Field(
        "large",
        description="which inputs are shown through FUSE where they are not cached, instead of being copied first",
    )
    policy: Literal["pf", "mmf"] = Field("pf", description="proportional or max-min fairness")


class CacheJob(BaseModel):
    """A job's section `extensions: {cache: ...}`: how it reads its inputs with `cached: true`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: Memory = Field(100 << 20, description="bytes a second that it reads of all of them")
    epochs: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="how often it reads them; left out: as long as it runs"
    )
