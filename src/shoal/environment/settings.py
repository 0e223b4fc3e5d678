"""The component's section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from shoal.extension import Section


def _absolute(path: str) -> str:
    if not Path(path).is_absolute() or Path(path) == Path("/"):
        raise ValueError(f"{path!r} is no absolute path of a folder")
    return str(Path(path))


class EnvironmentSection(Section):
    """The software that jobs run with."""

    enabled: bool = True
    conda: list[str] = Field(
        ["/opt/conda", "/opt/miniconda3", "/opt/miniforge3", "~/miniconda3", "~/miniforge3", "~/.conda"],
        description="conda installations, whose environments jobs may name; ~ is the home of the job's user",
    )
    shown: list[Annotated[str, AfterValidator(_absolute)]] = Field(
        [], description="folders with environments that jobs see, read-only, also in the sandbox bubblewrap"
    )
