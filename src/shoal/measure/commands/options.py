"""Options that several commands of `shoal measure` take, and what is read from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.core import Invalid
from shoal.measure.load import Encoding

if TYPE_CHECKING:
    from shoal.measure.load.generator import Settings
    from shoal.measure.types import InputMaker


_TARGET, _INPUTS = "Target", "Inputs"
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed makes the same load.")]
UrlOption = Annotated[
    str, typer.Option("--url", "-u", help="The server, as http://host:port.", rich_help_panel=_TARGET)
]
ModelOption = Annotated[str, typer.Option("--model", "-m", help="The model's name.", rich_help_panel=_TARGET)]
ModelsOption = Annotated[
    list[str],
    typer.Option("--model", "-m", help="The model's name; repeat it to load several at once.", rich_help_panel=_TARGET),
]
VersionOption = Annotated[
    str | None, typer.Option("--version", help="Its version; else the server chooses.", rich_help_panel=_TARGET)
]


@dataclass(frozen=True)
class Requests:
    """What is sent, and how long its answer is waited for. Not SHOAL_TOKEN: that one opens the control plane, and must
    not be sent to whatever server is measured."""

    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="SHOAL_TARGET_TOKEN", show_default=False, rich_help_panel=_TARGET,
            help="Bearer token. Prefer the environment: others can read command lines. Never SHOAL_TOKEN by itself.",
        ),
    ] = None  # fmt: skip
    timeout: Annotated[str, typer.Option("--timeout", help="A later answer is a failure.", rich_help_panel=_TARGET)] = (
        "30s"
    )
    encoding: Annotated[
        Encoding, typer.Option("--encoding", help="How tensors travel; auto asks the server.", rich_help_panel=_INPUTS)
    ] = Encoding.AUTO
    zeros: Annotated[bool, typer.Option("--zeros", help="Zeros, not random numbers.", rich_help_panel=_INPUTS)] = False
    batch: Annotated[int, typer.Option("--batch", "-b", min=1, help="Samples a request.", rich_help_panel=_INPUTS)] = 1

    def maker(self, file: Path | None = None, shapes: list[str] | None = None) -> InputMaker:
        """Of the examples in a file, if there is one; else of tensors with these shapes."""
        from shoal.measure.load.inputs import inputs_from_file, random_inputs, zero_inputs

        if file is not None:
            if self.zeros or shapes or self.batch != 1:
                raise Invalid(
                    "examples have their own values and shapes", where="--input",
                    hint="leave out --zeros, --batch, --shape",
                )  # fmt: skip
            return inputs_from_file(file)
        make = zero_inputs if self.zeros else random_inputs
        return make(batch=self.batch, shapes=dict(_shape(one) for one in shapes or ()))


@dataclass(frozen=True)
class Examples(Requests):
    """Requests that may be given."""

    input: Annotated[
        Path | None,
        typer.Option(
            "--input", "-i", rich_help_panel=_INPUTS,
            help="Examples: an inference request (or a list of them) as .json, or .npz with one array per input.",
        ),
    ] = None  # fmt: skip
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="An input's shape, as in image:1x3x224x224.", rich_help_panel=_INPUTS),
    ] = None

    def maker(self, file: Path | None = None, shapes: list[str] | None = None) -> InputMaker:
        return super().maker(file or self.input, shapes or self.shape)


@dataclass(frozen=True)
class Sending(Requests):
    """How a load is sent."""

    warmup: Annotated[str, typer.Option("--warmup", help="Sent first, and not counted.")] = "500ms"
    max_outstanding: Annotated[
        int, typer.Option("--max-outstanding", min=1, help="Unanswered requests at once, a target.")
    ] = 1000
    seed: SeedOption = 0

    def settings(self, **more: Any) -> Settings:
        from shoal.measure.load.generator import Settings

        return Settings(
            warmup_s=seconds_of(self.warmup, "--warmup", zero=True), timeout_s=seconds_of(self.timeout, "--timeout"),
            seed=self.seed, max_outstanding=self.max_outstanding, encoding=self.encoding, **more,
        )  # fmt: skip


@dataclass(frozen=True)
class SendingExamples(Sending, Examples):
    """A load of requests that may be given."""


@dataclass(frozen=True)
class LongWarmup(SendingExamples):
    """As above, with a longer warm-up."""

    warmup: Annotated[str, typer.Option("--warmup", help="Sent first, and not counted.")] = "1s"


@dataclass(frozen=True)
class Starts(Examples):
    """As above, with time for a model to load."""

    timeout: Annotated[str, typer.Option("--timeout", help="A later answer is a failure.", rich_help_panel=_TARGET)] = (
        "120s"
    )


def seconds_of(text: str | None, where: str, *, zero: bool = False) -> float:
    from pydantic_core import PydanticCustomError

    from shoal.contract.manifest.quantities import read_duration, read_duration_or_zero

    try:
        return (read_duration_or_zero if zero else read_duration)(text)
    except PydanticCustomError as error:
        context = error.context or {}
        raise Invalid(str(context.get("what")), where=where, hint=context.get("hint")) from None


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, sizes = text.rpartition(":")
    parts = sizes.split("x")
    if not colon or not name or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise Invalid(f"{text!r} is no shape", where="--shape", hint="write it as image:1x3x224x224")
    return name, tuple(int(part) for part in parts)
