"""Reads the manifests of FfDL (IBM's Fabric for Deep Learning, Middleware'19; docs/user-guide.md 2.4 there).

What has a counterpart is carried over, the variables FfDL gave to a learner included; what has none is named in a note.
Credentials, which FfDL keeps in clear, become references to secrets and are left out of the result and of every note.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from shoal.base.validation import shown
from shoal.contract.manifest.document import Document, decode, read_document
from shoal.contract.manifest.path import Path, show_path
from shoal.contract.manifest.problems import explain
from shoal.contract.manifest.schema import JobManifest
from shoal.core import Invalid

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])?(i)?b?\s*", re.IGNORECASE | re.ASCII)
_SHELL = re.compile(r"[|&;<>()`\n]")
_CONTINUED = re.compile(r"\s*\\?\n\s+(?=-)")  # YAML keeps the line's end before an option that is indented more
_STEPS = ("iteration", "step", "global_step", "epoch")
_KNOWN = {
    "name", "description", "version", "gpus", "cpus", "memory", "learners", "gpu_type", "schedpolicy", "data_stores",
    "framework", "evaluation_metrics",
}  # fmt: skip

_VARIABLES = (
    'export DATA_DIR="$PWD/data" MODEL_DIR="$PWD" RESULT_DIR="$PWD/results"; '
    'export LOG_DIR="$PWD/logs" JOB_STATE_DIR="$PWD/job"; '
    'export CHECKPOINT_DIR="$SHOAL_CHECKPOINT_DIR" TRAINING_ID="$SHOAL_JOB_ID"; '
    'export LEARNER_ID="$((RANK + 1))" NUM_LEARNERS="$WORLD_SIZE" GPU_COUNT={gpus}; '
    'mkdir -p "$DATA_DIR" "$RESULT_DIR" "$LOG_DIR" "$JOB_STATE_DIR"; '
)


def import_ffdl(text: str | bytes, *, source: str = "manifest") -> tuple[JobManifest, tuple[str, ...]]:
    """The job that an FfDL manifest describes, and a note on each thing that changed or could not be carried over.

    Raises Invalid with every problem when the text is no FfDL manifest.
    """
    document = read_document(decode(text, source), source)
    return _FfdlImporter(document).run()


class _FfdlImporter:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._notes: list[str] = []
        self._problems: list[tuple[int, Invalid]] = []

    def run(self) -> tuple[JobManifest, tuple[str, ...]]:
        values: dict[str, Any] = {"labels": {"imported-from": "ffdl"}}
        self._identity(values)
        self._resources(values)
        self._framework(values)
        self._stores(values)
        self._metrics(values)
        for name in self._document.value.keys() - _KNOWN:
            self._notes.append(f"`{name}` has no counterpart and is left out")
        if self._problems:
            raise self._refusal()
        try:
            manifest = JobManifest.model_validate(values)
        except ValidationError as error:
            for found in explain(error, Document(values, self._document.source)):
                self._complain(_ORIGIN.get(found.field, (found.field,)), found.what, found.hint)
            raise self._refusal() from None
        self._notes.append("FfDL took the model's files as an argument: name them under `files`")
        return manifest, tuple(self._notes)

    def _identity(self, values: dict[str, Any]) -> None:
        given = self._text(("name",), required=True)
        if given:
            name = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:63].strip("-")
            if not name:
                self._complain(("name",), f"{shown(given)} holds no letter or digit", "name the job")
            elif name != given:
                self._notes.append(f"`name` {shown(given)} became {name!r}: names are lower-case words with dashes")
            values["name"] = name
        if description := self._text(("description",)):
            values["description"] = description
        if version := self._text(("version",)):
            values["labels"]["version"] = version

    def _resources(self, values: dict[str, Any]) -> None:
        resources: dict[str, Any] = {}
        gpus, cpus = self._number(("gpus",)), self._number(("cpus",))
        if gpus is not None and gpus != int(gpus):
            self._complain(("gpus",), f"{gpus:g} is not a whole number", "accelerators are given whole")
        elif gpus:
            kind = self._text(("gpu_type",)) or "any"
            resources["accelerators"] = {"type": kind.lower(), "count": int(gpus)}
        if cpus is not None:
            resources["cpus"] = cpus
        if memory := self._text(("memory",)):
            resources["memory"] = self._memory(memory)
        for name, given in (("cpus", cpus), ("memory", memory)):
            if given is None:
                self._notes.append(f"`{name}` is not given: FfDL's large default is replaced by Shoal's")
        learners = self._number(("learners",))
        if learners is not None:
            values["ranks"] = int(learners) if learners == int(learners) else learners
        policy = self._text(("schedpolicy",))
        if policy in ("dense", "spread"):
            values["placement"] = "pack" if policy == "dense" else "spread"
        elif policy:
            self._notes.append(f"`schedpolicy` {shown(policy)} is unknown; `placement` stays `pack`")
        values["resources"] = resources

    def _memory(self, text: str) -> int:
        match = _SIZE.fullmatch(text)
        if not match:
            self._complain(("memory",), f"{shown(text)} is not a size", "FfDL writes 1Gb, 512Mb or 1000MiB")
            return 0
        number, prefix, binary = match.groups()
        unit = (1024 if binary else 1000) ** (" kmgt".index(prefix.lower()) if prefix else 2)
        return int(float(number) * unit)

    def _framework(self, values: dict[str, Any]) -> None:
        self._mapping(("framework",), required=True)
        command = self._text(("framework", "command"), required=True)
        name, version = self._text(("framework", "name")), self._text(("framework", "version"))
        if name:
            values["labels"]["framework"] = f"{name} {version}" if version else name
            self._notes.append(
                f"FfDL ran this in an image of {values['labels']['framework']}; here it must be installed"
            )
        if image := self._get(("framework", "image_location")):
            self._notes.append(f"`framework.image_location` is left out: {shown(image)}")
        if not command:
            return
        line = _CONTINUED.sub(" ", command.strip())
        if not _SHELL.search(line):
            line = f"exec {line}"  # signals then reach the program itself
        gpus = self._get(("gpus",)) or 0
        values["command"] = ["bash", "-c", _VARIABLES.format(gpus=shlex.quote(str(gpus))) + line]
        self._notes.append("FfDL's command is a line of shell: it runs as `bash -c`, with FfDL's variables set first")

    def _stores(self, values: dict[str, Any]) -> None:
        stores = self._get(("data_stores",))
        if stores is None:
            return
        if not isinstance(stores, list):
            self._complain(("data_stores",), "must be a list", "FfDL writes `- id: ...` for each store")
            return
        values["inputs"], values["outputs"] = [], []
        for place in range(len(stores)):
            at: Path = ("data_stores", place)
            if self._mapping(at, required=True):
                self._store(at, values)

    def _store(self, at: Path, values: dict[str, Any]) -> None:
        self._mapping((*at, "connection"))
        root = self._text((*at, "connection", "path"))
        data = self._text((*at, "training_data", "container"))
        results = self._text((*at, "training_results", "container"))
        base = f"{root.rstrip('/')}/" if root and root.startswith("/") else "s3://"
        if data:
            values["inputs"].append({"from": base + data, "to": "data"})
        if results:
            values["outputs"].append({"from": "results", "to": f"{base}{results}/{values.get('name', '')}"})
            self._notes.append(
                f"results go to {base}{results}/{values.get('name', '')}: give each job a place of its own"
            )
        if base != "s3://":
            return
        self._credentials(at, values)

    def _credentials(self, at: Path, values: dict[str, Any]) -> None:
        endpoint = self._text((*at, "connection", "auth_url"))
        if endpoint and "@" in endpoint:
            self._notes.append(
                f"CREDENTIALS in `{show_path((*at, 'connection', 'auth_url'))}` are left out, with the URL"
            )
        elif endpoint:
            known = values.setdefault("env", {}).setdefault("AWS_ENDPOINT_URL", endpoint)
            if known != endpoint:
                self._notes.append(f"the address of `{show_path(at)}` is left out: one job uses one S3 address")
        found = [key for key in ("user_name", "password") if self._get((*at, "connection", key)) is not None]
        if not found:
            return
        if "secrets" in values:
            self._notes.append(f"CREDENTIALS of `{show_path(at)}` are left out: one job uses one S3 account")
            return
        store = re.sub(r"[^A-Za-z0-9]+", "-", self._text((*at, "id")) or "store").strip("-") or "store"
        values["secrets"] = {"AWS_ACCESS_KEY_ID": f"{store}-access-key", "AWS_SECRET_ACCESS_KEY": f"{store}-secret-key"}
        self._notes.append(
            f"CREDENTIALS stood in clear in `{show_path((*at, 'connection'))}`; they were not copied. Change them, "
            "since every reader of the file knows them, and give the new ones to `shoal secret set` as "
            f"{store}-access-key and {store}-secret-key"
        )

    def _metrics(self, values: dict[str, Any]) -> None:
        if not self._mapping(("evaluation_metrics",)):
            return
        kind = self._text(("evaluation_metrics", "type"))
        if kind == "regex_extractor":
            values["metrics"] = {"regex": dict(self._patterns())}
        elif kind not in (None, "logger"):
            self._notes.append(f"metrics of type {shown(kind)} are not read: print them, or call shoal.train.report")

    def _patterns(self) -> Iterator[tuple[str, str]]:
        groups = self._mapping(("evaluation_metrics", "groups")) or {}
        for group, spec in groups.items():
            regex = spec.get("regex") if isinstance(spec, dict) else None
            scalars = (spec.get("scalars") or spec.get("values")) if isinstance(spec, dict) else None
            if not isinstance(regex, str) or not isinstance(scalars, dict) or "%{" in regex:
                self._notes.append(f"the metric group {shown(group)} is left out: its pattern uses FfDL's own symbols")
                continue
            times = spec.get("etimes") if isinstance(spec.get("etimes"), dict) else {}
            step = next((name for key in _STEPS if (name := _reference(times.get(key)))), None)
            for scalar, reference in scalars.items():
                name = _reference(reference)
                pattern = _rename(regex, {name: "value", **({step: "step"} if step and step != name else {})})
                label = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{group}.{scalar}").replace(".", "/", 1)
                if name and pattern:
                    yield label, pattern
                else:
                    self._notes.append(f"the metric {label} is left out: its pattern does not capture the value")

    def _get(self, path: Path) -> Any:
        value: Any = self._document.value
        for step in path:
            if isinstance(step, int):
                value = value[step]
            elif isinstance(value, dict):
                value = value.get(step)
            else:
                return None
        return value

    def _mapping(self, path: Path, *, required: bool = False) -> Any:
        """The mapping there, None if there is none, False (and a problem) if there is something else."""
        value = self._get(path)
        if value is None and required:
            self._complain(path, f"the field `{path[-1]}` is missing", "FfDL's manifests have it")
        if value is None or isinstance(value, dict):
            return value
        self._complain(path, f"must be a mapping, and {shown(value)} is not", None)
        return False

    def _text(self, path: Path, *, required: bool = False) -> str | None:
        """Text, or an unquoted number as it was written."""
        value = self._get(path)
        if value is None and required and (len(path) == 1 or isinstance(self._get(path[:-1]), dict)):
            self._complain(path, f"the field `{path[-1]}` is missing", "FfDL's manifests have it")
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, dict | list):
            self._complain(path, f"must be text, and {shown(value)} is not", None)
            return None
        return self._document.written.get(path, str(value))

    def _number(self, path: Path) -> float | None:
        value = self._get(path)
        try:
            return None if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            self._complain(path, f"{shown(value)} is not a number", None)
            return None

    def _complain(self, path: Path, what: str, hint: str | None) -> None:
        line = self._document.line(path)
        where = f"{self._document.source}:{line}: {show_path(path)}"
        self._problems.append((line, Invalid(what, where=where, hint=hint)))

    def _refusal(self) -> Invalid:
        problems = tuple(problem for _, problem in sorted(self._problems, key=lambda found: found[0]))
        if len(problems) == 1:
            return Invalid(problems[0].what, where=problems[0].where, hint=problems[0].hint, problems=problems)
        return Invalid(
            f"the FfDL manifest has {len(problems)} problems", where=self._document.source, problems=problems
        )


_ORIGIN: dict[str, Path] = {
    "ranks": ("learners",),
    "resources.cpus": ("cpus",),
    "resources.memory": ("memory",),
    "resources.accelerators.count": ("gpus",),
    "resources.accelerators.type": ("gpu_type",),
    "command": ("framework", "command"),
}
"""Where a field of the result came from."""


def _reference(item: Any) -> str | None:
    """The group's name in `{type: FLOAT, value: $loss}`."""
    value = item.get("value") if isinstance(item, dict) else item
    return value[1:] if isinstance(value, str) and value.startswith("$") and value[1:].isidentifier() else None


def _rename(regex: str, names: dict[str | None, str]) -> str | None:
    """The pattern with its named groups renamed; None when it has not all of them or cannot be compiled."""
    for old, new in names.items():
        if f"(?P<{old}>" not in regex:
            return None
        regex = regex.replace(f"(?P<{old}>", f"(?P<{new}>").replace(f"(?P={old})", f"(?P={new})")
    try:
        re.compile(regex)
    except re.error:
        return None
    return regex
