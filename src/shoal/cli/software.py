"""The software that a command line runs with, as options of `shoal run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.core import Invalid

_PROJECT, _PYTHON, _LOCK = "pyproject.toml", ".python-version", "uv.lock"


@dataclass(frozen=True, slots=True)
class SoftwareOptions:
    """Where a command line's software is; a manifest says the same by its `environment`."""

    venv: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of a command line: the virtual environment that it runs in.")
    ] = None
    conda: Annotated[
        str | None, typer.Option(metavar="NAME|DIR", help="Of a command line: the conda environment that it runs in.")
    ] = None
    uv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a command line: the uv.lock whose environment is made for it, once."),
    ] = None
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Of a command line: oci:DIR, docker-archive:FILE or REGISTRY/NAME[:TAG]."),
    ] = None

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return [f"--{name}" for name in ("venv", "conda", "uv", "image") if getattr(self, name) is not None]

    def add_to(self, made: dict[str, Any], line: Sequence[str], folder: Path, *, reads: bool, path: bool) -> None:
        """Complete the job of a command line that runs in `folder`. `reads`: it has standard input, `path`: it was
        given a PATH by an option. Raises Invalid."""
        if len(self.given) > 1:
            raise Invalid(f"{' and '.join(self.given)} say different things", where=self.given[0], hint="give one")
        if self.venv is not None:
            made["environment"] = {"venv": str(self.venv.absolute())}
        elif self.conda is not None:
            made["environment"] = {"conda": str(Path(self.conda).absolute()) if "/" in self.conda else self.conda}
        elif self.uv is not None:
            made["environment"] = {"uv": _LOCK}
        elif self.image is not None:
            made["environment"] = {"image": pinned(self.image), "mounts": [str(folder)]}
            if not reads:  # the shell that changes the directory may be missing in an image
                made["environment"]["workdir"] = str(folder)
                made["command"] = list(line)
            if not path:
                made["env"].pop("PATH")

    def files(self) -> bytes | None:
        """What is sent with the job, as an archive. Raises Invalid."""
        if self.uv is None:
            return None
        lock = self.uv / _LOCK if self.uv.is_dir() else self.uv
        if lock.name != _LOCK:
            raise Invalid(f"{str(lock)!r} is no uv.lock", where="--uv", hint="`uv lock` writes one")
        from shoal.contract import bundle

        names = [_PROJECT, _LOCK, *([_PYTHON] if (lock.parent / _PYTHON).exists() else [])]
        return bundle.pack(lock.parent, names)


def pinned(image: str) -> str:
    """An image on this machine with its absolute path, and with the digest that it has now where that can be seen."""
    transport, _, location = image.partition(":")
    if transport not in ("oci", "docker-archive") or "@" in location:
        return image
    path, colon, tag = location.partition(":")
    named = f"{transport}:{Path(path).absolute()}{colon}{tag}"
    if transport == "docker-archive":
        return named
    try:
        manifests = json.loads((Path(path) / "index.json").read_bytes())["manifests"]
        found = [one for one in manifests if not tag or one.get("annotations", {}).get(_NAME) == tag]
        return f"{named}@{found[0]['digest']}" if len(found) == 1 else named
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return named  # whoever copies it says what is wrong with it


_NAME = "org.opencontainers.image.ref.name"
