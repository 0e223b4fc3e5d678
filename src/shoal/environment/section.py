"""A job's section `extensions: {environment: ...}`: which software it runs with."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from shoal.environment.reference import read_image

_LONGEST_PATH = 4096
_EXTRA = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$"


class Kind(StrEnum):
    """Where a job's software comes from; each is a field of the section."""

    VENV = "venv"
    CONDA = "conda"
    UV = "uv"
    IMAGE = "image"

    @property
    def made(self) -> bool:
        """Whether it is made for a tenant, and kept."""
        return self in (Kind.UV, Kind.IMAGE)


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no absolute path")
    return _plain(path)


def _name_or_prefix(text: str) -> str:
    if "/" in text:
        return _absolute(text)
    if text.startswith(("-", ".")):
        raise ValueError(f"{text!r} is no name of a conda environment")
    return text


def _image(text: str) -> str:
    read_image(text)
    return text


def _relative(path: str) -> str:
    if path.startswith("/"):
        raise ValueError(f"{path!r} is not among the job's files")
    if PurePosixPath(path).name != "uv.lock":
        raise ValueError(f"{path!r} is no uv.lock")
    return _plain(path)


def _plain(path: str) -> str:
    """Without `..`, which means another directory where a link is on the way."""
    if ".." in PurePosixPath(path).parts:
        raise ValueError(f"{path!r} has a `..`")
    return path


_Word = Annotated[str, StringConstraints(min_length=1, max_length=_LONGEST_PATH, pattern=r"^[^\x00\n]+$")]


class EnvironmentJob(BaseModel):
    """The software that a job runs with: one of these."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    venv: Annotated[_Word, AfterValidator(_absolute)] | None = Field(
        None, description="a virtual environment: an absolute path on the machine where the job runs"
    )
    conda: Annotated[_Word, AfterValidator(_name_or_prefix)] | None = Field(
        None, description="a conda environment there: its name, or its absolute path"
    )

    uv: Annotated[_Word, AfterValidator(_relative)] | None = Field(
        None, description="the `uv.lock` among the job's files, beside which its `pyproject.toml` is"
    )
    extras: tuple[Annotated[str, StringConstraints(pattern=_EXTRA)], ...] = Field(
        (), max_length=64, description="of the project that the lock file is for: its extras that are wanted"
    )

    image: Annotated[_Word, AfterValidator(_image)] | None = Field(
        None, description="oci:DIR, docker-archive:FILE or REGISTRY/NAME[:TAG], with or without @sha256:DIGEST"
    )
    mounts: tuple[Annotated[_Word, AfterValidator(_absolute)], ...] = Field(
        (), max_length=64, description="paths of the machine that are seen in the image, with the job's own rights"
    )
    workdir: Annotated[_Word, AfterValidator(_absolute)] | None = Field(
        None, description="where the command starts in the image; left out: the run directory"
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [one.value for one in Kind if getattr(self, one.value) is not None]
        if len(given) != 1:
            named = " and ".join(given) or "nothing"
            raise ValueError(f"one of {', '.join(Kind)} says where the software is, and here is {named}")
        if self.extras and self.uv is None:
            raise ValueError("only a lock file has extras")
        if (self.mounts or self.workdir) and self.image is None:
            raise ValueError("only an image has mounts and a workdir")
        return self

    @property
    def kind(self) -> Kind:
        return next(one for one in Kind if getattr(self, one.value) is not None)
