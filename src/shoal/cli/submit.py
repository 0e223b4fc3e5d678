"""Submit: jobs from manifests, with the options that components add to them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.cli import arrays, joboptions, views
from shoal.cli.context import CliContext
from shoal.cli.remarks import warnings_of
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.sdk import Client
    from shoal.sdk.models import SubmittedView

_LISTED = 10
"""Up to this number of submitted jobs, each has a line of its own."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Manifests, YAML or JSON; - reads one from stdin.", allow_dash=True),
]
FileOption = Annotated[list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="The same, as an option.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="Idempotency key: the same submission twice is one job.")]


def register(app: typer.Typer) -> None:
    command(app, "submit", more=joboptions.option_types(), rich_help_panel=JOBS)(submit)


def submit(
    context: CliContext, files: Files = None, file: FileOption = None, tenant: TenantOption = None,
    key: KeyOption = None, strict: Annotated[
        bool, typer.Option("--strict", help="Submit nothing if a job could never start as things are.")
    ] = False, quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print all ids and nothing else: `... | shoal wait -`.")
    ] = False, **installed: Any,
) -> None:  # fmt: skip
    """Submit jobs; each is durable once its id is printed. Of many, one line says how many there are."""
    paths = given_paths(files, file)
    if key is not None and len(paths) > 1:
        raise Invalid("one key cannot be for several jobs", where="--key", hint="submit them one by one")
    added = joboptions.sections(installed)
    manifests = [joboptions.with_sections(read_manifest(path), added) for path in paths]
    folders = [path.absolute().parent if added and str(path) != "-" else None for path in paths]
    accepted = []
    with context.client() as client:
        if len(manifests) > 1 or strict:
            _check_all(client, manifests, tenant, strict=strict)
        try:
            for manifest, folder in zip(manifests, folders, strict=True):
                job = client.submit(manifest, tenant=tenant, idempotency_key=key, base=folder)
                accepted.append(job)
                if not context.json and (quiet or len(manifests) <= _LISTED):
                    ref, name = (job.id, job.name) if job.array is None else (job.array.id, arrays.title(job.array))
                    print(ref if quiet else f"{ref}  {name} ({job.tenant}){views.by_default(job)}", flush=True)
                warn(context, job, manifest)
        finally:
            if context.json and accepted:
                context.show(accepted[0] if len(paths) == 1 else accepted, lambda: None)
            elif accepted and not quiet and len(manifests) > _LISTED:
                print(f"submitted {len(accepted)} jobs: {accepted[0].id} to {accepted[-1].id}")


def given_paths(files: list[Path] | None, more: list[Path] | None) -> list[Path]:
    paths = [*(files or ()), *(more or ())]
    if not paths:
        raise Invalid("there is nothing to submit", where="FILE",
                      hint="name a manifest, or - for stdin; `shoal run COMMAND...` runs a command line")  # fmt: skip
    return paths


def read_manifest(path: Path) -> Path | str:
    """What the client takes for a file: its path, or stdin's text."""
    return sys.stdin.read() if str(path) == "-" else path


def warn(context: CliContext, job: SubmittedView, manifest: Path | str | dict[str, Any] | None = None) -> None:
    """Say why a job that was accepted can never start as things are, or hardly does what its manifest means."""
    told = [warning.text.removeprefix(views.WAITS) for warning in job.warnings]
    for text in [*told, *(warnings_of(manifest) if isinstance(manifest, Path | str) else ())]:
        context.note(f"warning: {job.name}: {text}")


def _check_all(
    client: Client, manifests: list[Path | str | dict[str, Any]], tenant: str | None, *, strict: bool
) -> None:
    """Of several files none is submitted if one is wrong, or may never start where that is `strict`. Raises Invalid
    with the problems of all."""
    found: list[Invalid] = []
    names: set[str] = set()
    for manifest in manifests:
        try:
            checked = client.check(manifest, tenant=tenant)
            # What one waits for may be submitted just before it.
            remarks = [one for one in checked.remarks if one.facts.get("job") not in names]
            names.add(checked.name)
            if strict and remarks:
                first = remarks[0].text.removeprefix(views.WAITS)
                raise Invalid(first, where=checked.name, hint="without --strict it would be accepted, and wait")
        except Invalid as error:
            found.append(error)
    if len(found) == 1:
        raise found[0]
    if found:
        problems = [problem for error in found for problem in (error.problems or (error,))]
        raise Invalid(
            f"{len(found)} of {len(manifests)} manifests are wrong: none was submitted", problems=tuple(problems)
        )
