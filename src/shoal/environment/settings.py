"""The component's section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from shoal.contract.manifest.quantities import read_size, write_size
from shoal.contract.manifest.values import Period
from shoal.extension import Section

Bytes = Annotated[int, BeforeValidator(read_size), PlainSerializer(write_size, return_type=str, when_used="json")]


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
    size: Bytes = Field(100 << 30, description="bytes that what is made for one tenant may take, such as 100GiB")
    files: int = Field(4_000_000, ge=1000, description="files that it may have")
    index: str = Field("", description="the package index that uv uses, in the place of PyPI")
    find_links: str = Field("", description="a folder or page with wheels, in which uv looks as well")
    offline: bool = Field(False, description="uv downloads nothing: what is not in the tenant's cache is missing")
    insecure_registries: list[str] = Field(
        [], description="registries that images are copied from without TLS, such as localhost:5000"
    )
    runtime: Literal["", "apptainer", "podman"] = Field(
        "",
        description="what runs images, on every machine of the engine; empty: Shoal unpacks them, and bubblewrap "
        "runs them, on the engine `local`",
    )
    recheck: Period = Field(
        300.0, description="for how long a tag of a registry is taken to mean the same image as before"
    )
    timeout: Period = Field(3600.0, description="how long the copy of an image may take")
