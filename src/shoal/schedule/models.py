"""API models of scheduling."""

from __future__ import annotations

from pydantic import Field

from shoal.contract.view import View


class WhatIfJob(View):
    """`now` and `then` are accelerator types; None: the job waits. `share` is its part of the time of all rounds."""

    job: str
    tenant: str
    accelerators: int
    now: str | None = None
    then: str | None = None
    changes: bool = False
    share: float = 0.0
    why: str = ""


class WhatIf(View):
    """The next round that a policy would make: `changed` of `of` jobs would come to another place, or to wait. Those
    come first."""

    policy: str
    changed: int
    of: int
    jobs: list[WhatIfJob] = Field(default_factory=list)
