"""Makes the reference pages from the code, each time the site is built (mkdocs-gen-files runs this file).

Every function returns a page as Markdown. `python docs/tools/reference.py DIRECTORY` writes them for a look.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "shoal"
MADE = "<!-- Made from the code by docs/tools/reference.py. -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table. Cells hold Markdown; line breaks become blanks."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# --- commands ---


def commands() -> str:
    import typer

    from shoal.cli.app import app

    group = typer.main.get_command(app)
    context = group.make_context("shoal", ["--help"], resilient_parsing=True)
    parts = [MADE, "# All commands", "", "Every command and option. [The command line](cli.md) says how they are used."]
    parts += [page for name in sorted(group.list_commands(context)) for page in _command(group, context, name, "shoal")]
    return "\n".join(parts) + "\n"


def _command(group: Any, context: Any, name: str, before: str) -> Iterator[str]:
    found = group.get_command(context, name)
    if found.hidden:
        return
    path = f"{before} {name}"
    inner = type(context)(found, info_name=name, parent=context)
    if hasattr(found, "list_commands"):
        yield f"\n## {path}\n\n{_paragraphs(found.help)}"
        for one in found.list_commands(inner):
            yield from _command(found, inner, one, path)
        return
    yield f"\n{'##' if before == 'shoal' else '###'} {path}\n"
    given = [_option(one)[0].strip("`") for one in found.params if one.param_type_name == "argument"]
    usage = " ".join([path, *given, "[OPTIONS]"])
    yield f"```text\n{usage}\n```\n\n{_paragraphs(found.help)}\n"
    rows = [_option(one) for one in found.params if not getattr(one, "hidden", False) and one.name != "help"]
    if rows:
        yield table(("", "what it means", "default"), rows)


def _paragraphs(text: str | None) -> str:
    return inspect.cleandoc(text or "")


def _option(one: Any) -> tuple[str, str, str]:
    if one.param_type_name == "argument":
        name = one.metavar or one.name.upper()
        name = (name if one.required else f"[{name}]") + "..." * (one.nargs == -1)
    else:
        value = "" if one.is_flag else one.metavar or one.name.upper()
        name = f"{', '.join([*one.opts, *one.secondary_opts])} {value}".strip()
    default, told = one.default, getattr(one, "show_default", None)
    if isinstance(default, list | tuple):
        default = ", ".join(map(str, default))
    shown = "" if default is None or isinstance(default, bool) or callable(default) else code(str(default))
    return code(name), getattr(one, "help", "") or "", told if isinstance(told, str) else shown


# --- settings ---


def settings() -> str:
    from shoal.control.settings import describe, load_settings

    found = describe(load_settings({"home": "/nonexistent"}, environ={}))
    groups: dict[str, list[Any]] = {}
    for one in found:
        section, dot, _ = one.name.partition(".")
        groups.setdefault(section if dot else "", []).append(one)
    parts = [
        MADE, "# Settings", "",
        "A flag of `shoal up` (`--set NAME=VALUE` for any setting) beats the variable, the variable beats "
        "`HOME/config.yaml`, and the file beats the default. A part in brackets says what holds where no default is "
        "shown. `shoal settings` shows the values of your server.",
    ]  # fmt: skip
    for name, members in groups.items():
        parts.append(f"\n## {name or 'The server'}\n")
        rows = [(code(one.name), code(_shown(one.default)), one.text, code(one.variable)) for one in members]
        parts.append(table(("setting", "default", "what it means", "variable"), rows))
    return "\n".join(parts) + "\n"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


# --- manifests ---


def manifests() -> str:
    from shoal.contract.manifest import JOB, other_kinds

    parts = [
        MADE, "# All manifest fields", "",
        "From the JSON Schemas that the server checks by; `shoal manifest schema` prints them for editors. "
        "`shoal manifest explain FIELD` says the same. [Manifests](manifest.md) has examples.",
    ]  # fmt: skip
    for title, schema in ((kind.name.capitalize(), kind.schema()) for kind in (JOB, *other_kinds())):
        parts.append(f"\n## {title}\n\n{_fields(schema, schema['$defs'])}")
        for name, part in sorted(schema["$defs"].items()):
            if part.get("type") == "object":
                about = part.get("description", "")
                parts.append(f"\n### {title}: {name}\n\n{about}\n\n{_fields(part, schema['$defs'])}")
    return "\n".join(parts) + "\n"


def _fields(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        (
            code(name),
            field.get("description", ""),
            kind_of(field, parts),
            "needed" if name in needed else code(_default(field)),
            _limits(field),
        )
        for name, field in schema.get("properties", {}).items()
    ]
    return table(("field", "what it means", "type", "default", "limits"), rows)


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, "", [], {}, ()) or isinstance(value, dict) else json.dumps(value)


def kind_of(field: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """A field's type in words; a named part by its name, an enumeration by its values."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        part = parts.get(name, {})
        return " or ".join(code(one) for one in part["enum"]) if "enum" in part else f"*{name}*"
    if "const" in field:
        return code(str(field["const"]))
    if "enum" in field:
        return " or ".join(code(str(one)) for one in field["enum"])
    for several in ("anyOf", "oneOf"):
        if several in field:
            kinds = [kind_of(one, parts) for one in field[several] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if len(field.get("allOf", ())) == 1:
        return kind_of(field["allOf"][0], parts)
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {kind_of(field.get('items', {}), parts)}"
    if kind == "object" and "additionalProperties" in field and isinstance(field["additionalProperties"], dict):
        return f"mapping to {kind_of(field['additionalProperties'], parts)}"
    if kind == "object" and "patternProperties" in field:
        (inner,) = field["patternProperties"].values()
        return f"mapping to {kind_of(inner, parts)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


_LIMITS = {
    "minimum": "at least {}", "exclusiveMinimum": "more than {}", "maximum": "at most {}", "maxLength": "{} characters",
    "maxItems": "{} entries", "maxProperties": "{} entries", "minItems": "at least {} entries",
}  # fmt: skip


def _limits(field: Mapping[str, Any]) -> str:
    said = [text.format(field[key]) for key, text in _LIMITS.items() if key in field]
    for one in field.get("anyOf", ()):
        said += [text.format(one[key]) for key, text in _LIMITS.items() if key in one]
        said += [one["description"]] if "description" in one and one["description"] not in said else []
    return "; ".join(dict.fromkeys(said))


# --- the API ---


def openapi() -> dict[str, Any]:
    from unittest.mock import MagicMock

    from shoal.control.api.app import create_app
    from shoal.control.extensions.installed import installed_extensions

    context = MagicMock()
    context.plane.extensions = [one.__new__(one) for one in installed_extensions()]  # their routes need no server
    found: dict[str, Any] = create_app(context).openapi()
    return found


def operations() -> str:
    described = openapi()
    parts = [
        MADE, "# All API operations", "",
        "Made from the server's own description, which is [openapi.json](openapi.json) here and `GET /openapi.json` "
        "on a server. [The API](api.md) says how it is used and what [each error](api.md#errors) means.",
    ]  # fmt: skip
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            parts.append(f"\n### {method.upper()} {path}\n\n{one.get('summary', '')}. {one.get('description', '')}\n")
            rows = [
                (code(each["name"]), each["in"], kind_of(each.get("schema", {}), {}), each.get("description", ""))
                for each in one.get("parameters", ())
            ]
            if rows:
                parts.append(table(("parameter", "in", "type", "what it means"), rows))
            answers = one["responses"].items()
            good = [(status, _schema_of(what), what.get("description", "")) for status, what in answers if status < "4"]
            refused = ", ".join(status for status, _ in answers if status >= "4")
            parts.append(
                table(("status", "body", "when"), [*good, *([(refused, "`ErrorView`", "")] if refused else [])])
            )
    return "\n".join(parts) + "\n"


def _schema_of(answer: Mapping[str, Any]) -> str:
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return code(schema["$ref"].rsplit("/", 1)[-1]) if "$ref" in schema else kind_of(schema, {}) if schema else ""


# --- what the sources name: metrics and events ---


def _nodes(word: str) -> Iterator[tuple[Path, ast.Call | ast.Tuple]]:
    """Calls, then tuples, of the sources in which this word stands."""
    texts = [(path, path.read_text()) for path in sorted(SOURCES.rglob("*.py"))]
    trees = [(path.relative_to(SOURCES), ast.parse(text)) for path, text in texts if word in text]
    for kind in (ast.Call, ast.Tuple):
        for path, tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, kind):
                    yield path, node


def _texts(nodes: Iterable[ast.AST]) -> list[str | None]:
    return [one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else None for one in nodes]


def metric_names() -> dict[str, tuple[str, str]]:
    """All metrics by name, with what they say and which program has them: the server, the gateway or the guard."""
    found: dict[str, tuple[str, str]] = {}
    for path, node in _nodes('"shoal_'):
        texts = _texts((node.args if isinstance(node, ast.Call) else node.elts)[:3])
        about = next((text for text in texts[1:] if text and (text[0].isupper() or " " in text)), None)
        if texts and texts[0] and texts[0].startswith("shoal_") and about:
            found[texts[0]] = about, next((one for one in ("gateway", "guard") if one in path.parts), "server")
    return found


def metrics() -> str:
    where = {
        "server": "The server: `GET /metrics` with the admin's token",
        "gateway": "The gateway: `GET /metrics` with the operator's token",
        "guard": "The guard: where its configuration says (`metrics: {port: 9464}` or `file`)",
    }
    parts = [MADE, "# Metrics", "", "Prometheus' text format. Counters carry `_total`, histograms `_bucket` and so on."]
    found = metric_names()
    for program, text in where.items():
        rows = [(code(name), about) for name, (about, of) in sorted(found.items()) if of == program]
        parts.append(f"\n## {text}\n\n{table(('metric', 'what it says'), rows)}")
    return "\n".join(parts) + "\n"


def events() -> str:
    from shoal.contract.events import EventKind
    from shoal.control.extensions.installed import installed_extensions

    kinds = [*EventKind, *(kind for one in installed_extensions() for kind in one.events or ())]
    parts = [
        MADE, "# Events", "",
        "Every change is one event, with a number that grows in the order of commits: `shoal events -f`, or "
        "[the API's streams](api.md#following). Fields: `seq`, `at`, `kind`, `actor`, `cause`, `tenant`, `job_id`, "
        "`old_state`, `new_state`, `data`.", "",
        table(("kind", "when"), [(code(kind), kind.about) for kind in kinds]), "",
        "## States of a job", "",
        "![The states of a job and the steps between them](../pictures/job.svg)", "",
        table(("from", "to"), _steps()),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _steps() -> Iterator[tuple[str, str]]:
    from shoal.contract.lifecycle import TRANSITIONS

    for state, following in TRANSITIONS.items():
        yield code(state), ", ".join(code(one) for one in sorted(following)) or "nothing: it is over"


# --- errors ---

ENDS = {
    "U101-exit-code": "the command ended with another exit code than 0",
    "U102-killed-by-signal": "the command was ended by a signal that Shoal did not send",
    "U103-out-of-memory": "a rank needed more than its memory limit",
    "U104-command-not-found": "the command does not exist or may not be executed",
    "U105-max-runtime": "the job ran for longer than its `max_runtime`",
    "U106-deadline": "the job had not ended by its `deadline`",
    "U107-over-limit": "a rank went over its limit of disk, or (without cgroups) of processes",
    "U108-refused-by-cluster": "no machine of the cluster could ever run such a gang",
    "U201-input-data": "an input could not be fetched",
    "U202-output-data": "an output could not be stored",
    "U301-secret-missing": "a secret that the manifest names is not stored",
    "P101-launch": "the engine could not start the processes",
    "I101-rank-lost": "a rank ended and nothing recorded how",
    "I102-node-lost": "a node went away",
}


def errors() -> str:
    from shoal.base.console.command import exit_code
    from shoal.contract.lifecycle import ErrorCode
    from shoal.core import errors as typed

    wrong = {one.value for one in ErrorCode} ^ set(ENDS)
    if wrong:
        raise SystemExit(f"docs/tools/reference.py: ENDS and the code differ in {sorted(wrong)}")
    kinds = [one for one in vars(typed).values() if inspect.isclass(one) and issubclass(one, typed.ShoalError)]
    exits = [(str(exit_code(one("x"))), code(one.code), code(one.__name__), _paragraphs(one.__doc__))
             for one in kinds if one is not typed.ShoalError]  # fmt: skip
    fault = {"U": "user", "P": "platform", "I": "infrastructure"}
    parts = [
        MADE, "# Errors and exit codes", "",
        "## Why an attempt ended", "",
        "The first letter says whose fault it was; a manifest's `restart.limits` counts by it.", "",
        table(("code", "fault", "when"), [(code(one), fault[one[0]], ENDS[one]) for one in ENDS]), "",
        "## Errors of the client and the API", "",
        "The same names in Python (`shoal.core`), in the API's `error.code`, and as the command line's exit code. "
        "[The API](api.md#errors) has their HTTP status, [inference](inference.md#what-a-call-is-refused-with) has "
        "those of inference.", "",
        table(("exit code", "code", "class", "when"), exits), "",
        "## Exit codes of `shoal`", "",
        table(("exit code", "when"), [
            ("0", "done; for `run` and `wait`: the job succeeded"), ("1", "the job or operation failed"),
            ("2", "wrong usage or input"), ("3", "not found"), ("4", "no server answers, or it is not ready"),
            ("5", "not allowed"), ("6", "contradicts the present state"),
            ("130", "interrupted; a job that was followed goes on")]),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


# --- decisions ---


def decisions() -> str:
    parts = [MADE, "# Decisions", "", "What was chosen, why, and what follows. One page each.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        title = path.read_text().splitlines()[0].removeprefix("# ")
        parts.append(f"- [{title}]({path.name})")
    return "\n".join(parts) + "\n"


# --- figures ---


def measured(directory: Path = ROOT / "benchmarks" / "results") -> str:
    """What `python benchmarks/NAME.py --json > benchmarks/results/NAME.json` wrote, as tables; empty without any."""
    parts = []
    for path in sorted(directory.glob("*.json")):
        found = json.loads(path.read_text())
        on = found["machine"]
        command = found.get("command", f"python benchmarks/{path.stem}.py")
        parts.append(
            f"\n### {found['benchmark']}\n\n`{command}`; {on['cpu']}, {on['cores']} cores, {on['memory_gib']} GiB, "
            f"Python {on['python']}, commit {on['commit']}, load {on['load']:.1f}.\n"
        )
        rows = [
            (
                row["measure"],
                f"{row['value']:.5g} {row['unit']}",
                row["target"],
                {True: "yes", False: "**no**"}.get(row["ok"], ""),
            )
            for row in found["rows"]
        ]
        parts.append(table(("measure", "figure", "target", "reached"), rows))
    return "\n## The newest runs\n" + "\n".join(parts) if parts else ""


PAGES = {
    "reference/commands.md": commands,
    "reference/settings.md": settings,
    "reference/manifest-fields.md": manifests,
    "reference/operations.md": operations,
    "reference/openapi.json": lambda: json.dumps(openapi(), indent=1),
    "reference/metrics.md": metrics,
    "reference/events.md": events,
    "reference/errors.md": errors,
    "decisions/index.md": decisions,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        target = Path(sys.argv[1]) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(make())
elif __name__ == "<run_path>":
    import mkdocs_gen_files

    for name, make in PAGES.items():
        with mkdocs_gen_files.open(name, "w") as file:
            file.write(make())
    with mkdocs_gen_files.open("results.md", "a") as file:
        file.write(measured())
