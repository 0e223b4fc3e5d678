"""The component's section of the settings, and its section of a manifest."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shoal.engine import HomeShown
from shoal.extension import Section


class UsersSection(Section):
    """Users of this machine as callers."""

    enabled: bool = True
    allow_root: bool = Field(False, description="may the user with the id 0 be mapped to a tenant, and so run jobs?")
    umask: Annotated[str, Field(pattern="^0?[0-7]{3}$")] = Field(
        "077", description="what is taken from the modes of files that jobs of users make: 077, or 022 for all to read"
    )


class UsersManifest(BaseModel):
    """Of a job that runs as the user who submits it. `directory` is where it starts, `~` for that user's home, instead
    of a new directory of the server's; `home` says whether the sandbox `bubblewrap` shows that home."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: Annotated[str, Field(max_length=4096, pattern=r"^(/|~$|~/)[^\x00]*$")] | None = None
    home: HomeShown = HomeShown.NO
