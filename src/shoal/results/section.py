"""Sections of settings and manifests about results."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from shoal.contract.manifest.quantities import read_size, write_size
from shoal.contract.manifest.values import Period
from shoal.extension import Section
from shoal.results.keeping.names import LONGEST_NAME, Wanted, check_name, check_path

Bytes = Annotated[int, BeforeValidator(read_size), PlainSerializer(write_size, return_type=str, when_used="json")]


def _address(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is no address of a server, such as http://mlflow:5000")
    return text


def _place(text: str) -> str:
    if text and "://" not in text and not text.startswith("/"):
        raise ValueError(f"{text!r} is neither an absolute path nor a URL, such as s3://bucket/artifacts")
    return text


Address = Annotated[str, AfterValidator(_address)]


class ResultsSection(Section):
    """Where jobs report what they measure, and what is kept of the files that they leave."""

    enabled: bool = True
    mlflow: Address = Field("", description="address of an MLflow server, such as http://mlflow:5000")
    wandb: Address = Field("", description="address of Weights & Biases, such as https://api.wandb.ai")
    wandb_entity: str = Field("", description="the team there")
    address: Address = Field("", description="where people reach this server, for the link from a run to its job")
    store: Annotated[str, AfterValidator(_place)] = Field(
        "", description="folder or URL (as fsspec takes it) for the contents of artifacts [the server's home]"
    )
    size: Bytes = Field(100 << 30, description="bytes that the artifacts of one tenant may take, such as 100GiB")
    together: bool = Field(False, description="`size` and `files` are of all tenants together, as in a plane they are")
    files: int = Field(100_000, ge=1, description="artifacts that it may have")
    keep: Period = Field(90 * 86_400.0, description="how long an artifact stays that is not pinned")
    versions: int = Field(
        0, ge=0, description="how many newest artifacts of one name stay, of jobs of one name; 0: all of them"
    )


class ArtifactWish(BaseModel):
    """Files that are kept whenever an attempt ends. A plain path means `path`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, AfterValidator(check_path)] = Field(
        min_length=1,
        max_length=1024,
        description="a file, directory or pattern such as logs/*.txt in the job's directory",
    )
    name: Annotated[str, AfterValidator(check_name)] | None = Field(
        None, max_length=LONGEST_NAME, description="what it is called; of several, what stands before their names"
    )

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.path, self.name)


def _wish(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class ResultsJob(BaseModel):
    """How a job's runs are filed, and which of its files are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str | None = Field(
        None,
        max_length=128,
        pattern=r"^[\w][\w .-]*$",
        description="experiment or project; left out: the tenant's name",
    )
    tracked: bool = Field(True, description="false: it is told of no tracking server")
    artifacts: tuple[Annotated[ArtifactWish, BeforeValidator(_wish)], ...] = Field(
        (), max_length=64, description="files that are kept whenever an attempt ends"
    )
    tensorboard: Annotated[str, AfterValidator(check_path)] | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="a directory in the job's, named by TENSORBOARD_LOGDIR, and kept whenever an attempt ends",
    )

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        board = (Wanted(self.tensorboard, literal=True),) if self.tensorboard is not None else ()
        return (*(one.wanted for one in self.artifacts), *board)
