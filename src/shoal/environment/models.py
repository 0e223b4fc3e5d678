"""API models of environments."""

from __future__ import annotations

from pydantic import Field

from shoal.contract.view import View


class EnvironmentView(View):
    """Something that was made for the jobs of a tenant."""

    tenant: str
    kind: str = Field(description="`uv` or `image`")
    key: str = Field(description="what it is named by: a digest of what it was made from")
    source: str = Field(description="what the first job that needed it called it")
    bytes: int
    files: int
    made_at: float
    used_at: float
    used: bool = Field(description="whether a job that is not over runs with it")


class EnvironmentList(View):
    """The one that was used last first."""

    environments: tuple[EnvironmentView, ...]
