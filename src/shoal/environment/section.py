"""A job's section `extensions: {environment: ...}`: which software it runs with."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

_LONGEST_PATH = 4096


class Kind(StrEnum):
    """Where a job's software comes from; each is a field of the section."""

    VENV = "venv"
    CONDA = "conda"


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

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [one.value for one in Kind if getattr(self, one.value) is not None]
        if len(given) != 1:
            named = " and ".join(given) or "nothing"
            raise ValueError(f"one of {', '.join(Kind)} says where the software is, and here is {named}")
        return self

    @property
    def kind(self) -> Kind:
        return next(one for one in Kind if getattr(self, one.value) is not None)
