"""Manifests: check them, print their schema, translate them from elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from shoal.base.console.command import TenantOption, command
from shoal.base.console.files import read_input
from shoal.base.console.panels import JOBS
from shoal.cli.context import CliContext
from shoal.cli.remarks import warnings_of
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.contract.manifest import Kind
    from shoal.sdk.models import CheckView

_AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Options are Slurm's, and those behind the script are the script's own."""


def register(app: typer.Typer) -> None:
    manifest = typer.Typer(
        help="Check manifests; say what their fields mean; print their schema for editors.", no_args_is_help=True
    )
    command(manifest, "check")(check)
    command(manifest, "schema")(schema)
    command(manifest, "explain")(explain)
    app.add_typer(
        manifest, name="manifest", rich_help_panel=JOBS, short_help="Check manifests, say what their fields mean"
    )
    importer = typer.Typer(cls=Importers, help="Translate manifests of other platforms.", no_args_is_help=True)
    importer.callback()(lambda: None)
    command(app, "sbatch", rich_help_panel=JOBS, context_settings=_AS_GIVEN)(sbatch)
    app.add_typer(importer, name="import", rich_help_panel=JOBS)


class Importers(TyperGroup):
    """Importers that components declare, looked up when `shoal import` is used."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        from shoal.base.discover import load_all

        loaded, wrong = load_all("importers")
        for problem in wrong:
            print(f"warning: {problem}", file=sys.stderr)
        return list(loaded)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        from shoal.base.discover import find_one

        if cmd_name not in self.commands and (found := find_one("importers", cmd_name)) is not None:
            app = typer.Typer()
            command(app, cmd_name)(found.load())
            self.commands[cmd_name] = typer.main.get_command(app)
        return self.commands.get(cmd_name)


def check(
    context: CliContext,
    file: Annotated[Path, typer.Argument(help="A manifest; - reads stdin.", allow_dash=True, metavar="FILE")],
    tenant: TenantOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Only what can be said without a server.")] = False,
) -> None:
    """Check a manifest without submitting it: its text here, and against tenant and nodes where a server answers."""
    from shoal.contract.manifest import kind_of, parse_as
    from shoal.sdk import NoServer

    text, source = read_input(file)
    kind = kind_of(text)
    manifest = parse_as(kind, text, source=source)
    answer: CheckView | None = None
    if not offline:
        try:
            with context.client(patience_s=0.0) as client:
                takers = client if kind.namespace is None else getattr(client, kind.namespace)
                answer = takers.check(text if str(file) == "-" else file, tenant=tenant)
        except NoServer:
            context.note("no server answers: checked the text only")
    told = warnings_of(text if str(file) == "-" else file)
    found = (
        {"name": manifest.name, "manifest": json.loads(manifest.canonical_json())}
        if answer is None else answer.model_dump(mode="json")
    )  # fmt: skip

    def human() -> None:
        print(f"{manifest.name}: the manifest is good")
        for remark in answer.remarks if answer is not None else ():
            print(f"  note: {remark.text}")
        for warning in told:
            print(f"  warning: {warning}")

    context.show({**found, "warnings": told}, human)


def schema(
    context: CliContext,
    kind: Annotated[str, typer.Option(help="job, or service.")] = "job",
    server: Annotated[bool, typer.Option("--server", help="The one that the running server checks by.")] = False,
) -> None:
    """The manifest's JSON Schema. Needs no server without --server."""
    found, of = None, _kind(kind)
    if server:
        with context.client() as client:
            takers = client if of.namespace is None else getattr(client, of.namespace)
            found = takers.manifest_schema()
    print(json.dumps(found or of.schema(), indent=2))


def _kind(name: str) -> Kind:
    from shoal.contract.manifest import JOB, other_kinds

    known = {one.name: one for one in (JOB, *other_kinds())}
    if name not in known:
        raise Invalid(f"there is no kind {name!r}", where="--kind", hint=" or ".join(known))
    return known[name]


def explain(
    context: CliContext,
    field: Annotated[
        str, typer.Argument(help="Such as restart.limits.", show_default="all at the top", metavar="FIELD")
    ] = "",
    kind: Annotated[str, typer.Option(help="job, or service.")] = "job",
) -> None:
    """What a field means, what it is when it is left out, and the fields in it."""
    of, steps = _kind(kind), field.split(".") if field else []
    *above, last = steps or [""]
    siblings = of.fields(of.place(above))
    if steps and last not in siblings:
        raise Invalid(f"there is no field {field!r}", where=field, hint=f"fields here: {', '.join(siblings)}")
    shown = {".".join([*above, last]): siblings[last]} if steps else {}
    shown |= {".".join([*steps, name]): one for name, one in of.fields(of.place(steps)).items()}
    rows = [
        {"field": name, "needed": one.is_required(), "default": _default(one.default), "means": one.description}
        for name, one in shown.items()
    ]

    def human() -> None:
        for row in rows:
            left_out = "needed" if row["needed"] else row["default"]
            print(f"{row['field']}{f' ({left_out})' if left_out not in (None, '') else ''}: {row['means']}")

    context.show(rows, human)


def _default(value: Any) -> Any:
    """As it is written in a manifest; None where it is nothing, or has fields of its own."""
    return value if isinstance(value, str | int | float) and value != "" else None


def ffdl(
    context: CliContext,
    file: Annotated[Path, typer.Argument(help="An FfDL manifest.yml; - reads stdin.", allow_dash=True, metavar="FILE")],
    submit: Annotated[bool, typer.Option("--submit", help="Submit the result at once.")] = False,
    tenant: TenantOption = None,
) -> None:
    """Translate a manifest of FfDL (Middleware'19): the result on stdout, what was changed or left out on stderr."""
    from shoal.cli.importers.ffdl import import_ffdl

    text, _ = read_input(file)
    manifest, notes = import_ffdl(text)
    for note in notes:
        context.note(f"note: {note}")
    if submit:
        base = file.absolute().parent if str(file) != "-" else None
        with context.client() as client:
            job = client.submit(manifest.canonical_json(), tenant=tenant, base=base)
        context.show(job, lambda: print(f"{job.id}  {job.name} ({job.tenant})"))
        return
    values = json.loads(manifest.canonical_json())
    context.show({"manifest": values, "notes": [str(note) for note in notes]}, lambda: _yaml(values))


def slurm(
    context: CliContext,
    file: Annotated[
        Path, typer.Argument(help="A batch script of Slurm; - reads stdin.", allow_dash=True, metavar="FILE")
    ],
) -> None:
    """Translate a batch script of Slurm: the manifest on stdout, what was changed or left out on stderr."""
    from shoal.cli.importers.slurm import import_slurm

    text, _ = read_input(file)
    name = "script.sh" if str(file) == "-" else file.name
    manifest, notes = import_slurm(text, name=name, folder=Path.cwd())
    for note in notes:
        context.note(f"note: {note}")
    values = json.loads(manifest.canonical_json())
    context.show({"manifest": values, "notes": list(notes)}, lambda: _yaml(values))


def sbatch(
    context: CliContext,
    words: Annotated[
        list[str], typer.Argument(metavar="WORD", help="As for Slurm's sbatch: options, a script, its arguments.")
    ],
) -> None:
    """Submit a batch script of Slurm: its `#SBATCH` directives become a manifest. What cannot be kept is told on
    stderr. `shoal import slurm SCRIPT` shows the manifest."""
    import tempfile

    from shoal.cli.importers.slurm import import_slurm, split_words

    options, wrapped, script, arguments = split_words(words)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(script)
        if wrapped is not None or script == "-":
            path = Path(folder, "wrap.sh" if wrapped is not None else "script.sh")
            path.write_text(sys.stdin.read() if wrapped is None else f"#!/bin/sh\n{wrapped}\n")
        text, _ = read_input(path)
        manifest, notes = import_slurm(text, name=path.name, options=options, arguments=arguments, folder=Path.cwd())
        for note in notes:
            context.note(f"note: {note}")
        with context.client() as client:
            job = client.submit(manifest.canonical_json(), tenant=manifest.tenant, base=path.absolute().parent)
    ref = job.id if job.array is None else job.array.id
    parsable = "--parsable" in options
    context.show(job, lambda: print(ref if parsable else f"Submitted batch job {ref}"))


def _yaml(values: object) -> None:
    import yaml

    print(yaml.safe_dump(values, sort_keys=False), end="")
