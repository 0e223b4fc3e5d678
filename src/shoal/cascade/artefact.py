"""The file of a cascade: one zip, stored and not deflated, of JSON and `.npy` arrays. No pickle, no code.

`cascade.json` has the schema version, the digests of all arrays, and everything that is no array. What the file says is
checked before it is believed: a damaged, enlarged or malicious file is refused in words.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shoal.base.files import write_whole
from shoal.cascade.certificate import Aim, Certificate, Expected, Test
from shoal.cascade.models.base import Model
from shoal.cascade.models.linear import Linear
from shoal.cascade.models.network import Network
from shoal.cascade.models.opaque import OpaqueModel
from shoal.cascade.models.trees import Trees
from shoal.cascade.program import Group, Program, Stage
from shoal.cascade.recorded import RecordedStep
from shoal.cascade.rules import rule_from_json
from shoal.cascade.staged import StagedPipeline
from shoal.cascade.steps.base import Array, Arrays, Step
from shoal.cascade.steps.columns import Affine, AsNumbers, Impute, ImputeCategory, OneHot, Ordinal
from shoal.cascade.steps.lookup import JoinStep, LookupStep
from shoal.cascade.steps.opaque import OpaqueStep, code_digest
from shoal.cascade.steps.text import TextStep
from shoal.cascade.topk import TopK
from shoal.core import Invalid

Kind = TypeVar("Kind", bound=StagedPipeline)
SCHEMA = 1
CERTIFICATE = 1
"""The version of what a certificate means. One of another version is worth none: every row takes the full path."""
SUFFIX = ".cascade"
MANIFEST = "cascade.json"
MOST_BYTES = 4 << 30
"""Of a file: a forest of a million nodes has 60 MB, a vocabulary of a million terms with ten classes 130 MB."""
MOST_MANIFEST_BYTES = 256 << 20
MOST_ENTRIES = 100_000
_NAME = re.compile(r"arrays/\d{1,6}\.npy")
_KINDS = "fiub"

_STEPS = (
    TextStep,
    AsNumbers,
    Affine,
    Impute,
    ImputeCategory,
    OneHot,
    Ordinal,
    OpaqueStep,
    LookupStep,
    JoinStep,
    RecordedStep,
)
STEPS: Mapping[str, type[Step]] = {one.kind: one for one in _STEPS}
MODELS: Mapping[str, type[Model]] = {one.kind: one for one in (Linear, Trees, Network, OpaqueModel)}


def save(cascade: StagedPipeline, path: Path) -> None:
    """Raises Invalid where a part has no form outside Python, or the file cannot be written."""
    if cascade.prefer_original and not cascade.report.get("against_original"):
        raise Invalid("the pipeline was not compiled, so there is nothing to write", where="cascade")
    arrays = _Writer()
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "columns": list(cascade.columns),
        "kinds": list(cascade.kinds.values()),
        "groups": [_group_state(group, arrays) for group in cascade.full.groups],
        "stages": [
            {"groups": list(stage.groups), "model": _state(stage.model, arrays)}
            for stage in [*cascade.stages, *cascade.full.stages]
        ],
        "rules": [[rule.as_json() for rule in rules] for rules in cascade.rules],
        "expected": [asdict(one) for one in cascade.expected],
        "test": cascade.test.value,
        "aim": asdict(cascade.aim),
        "certificate": None if cascade.certificate is None else cascade.certificate.as_json(),
        "top_k": None if cascade.filter is None else cascade.filter.as_json(),
        "filter": None
        if cascade.filter_stage is None
        else {"groups": list(cascade.filter_stage.groups), "model": _state(cascade.filter_stage.model, arrays)},
        "used": {role: arrays.put(prints) for role, prints in cascade.used.items()},
        "report": cascade.report,
        "sha256": arrays.digests,
    }
    document["functions"] = {name: code_digest(name) for name in _functions(document)}
    document["certified"] = {"version": CERTIFICATE, "of": _digest(document)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, data in {MANIFEST: json.dumps(document).encode(), **arrays.files}.items():
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)  # equal contents give equal files
    try:
        write_whole(path, buffer.getvalue(), mode=0o644)
    except OSError as error:
        raise Invalid(f"cannot be written: {error.strerror}", where=str(path)) from None


def read_file(path: Path, kind: type[Kind]) -> Kind:
    """Raises Invalid for a file that is damaged, of another version, or not an artefact."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Invalid(f"it has more than {MOST_BYTES >> 30} GiB", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path)) from None
    return read(data, str(path), kind)


def read(data: bytes, where: str, kind: type[Kind]) -> Kind:
    """The same from bytes that were read already. `where` is what messages call them."""
    try:
        document, arrays = _contents(data)
        return _restored(document, arrays, kind)
    except Invalid as error:
        raise Invalid(error.what, where=error.where if error.where == "artefact" else where, hint=error.hint) from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, OverflowError) as error:
        text = str(error) or type(error).__name__
        raise Invalid(
            f"it is damaged, or no artefact of this version: {text[:200]}", where=where, hint="optimize again"
        ) from None


class _Writer:
    """Arrays as the files that they become."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}

    def put(self, array: Array) -> str:
        if array.dtype.kind not in _KINDS:
            raise Invalid(f"an array of {array.dtype} cannot be written", where="cascade")
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
        name = f"arrays/{len(self.files)}.npy"
        self.files[name] = buffer.getvalue()
        self.digests[name] = hashlib.sha256(self.files[name]).hexdigest()
        return name


def _state(part: Step | Model, arrays: _Writer) -> dict[str, Any]:
    parameters, own = part.state()
    return {
        "kind": part.kind,
        "parameters": parameters,
        "arrays": {name: arrays.put(array) for name, array in own.items()},
    }


def _group_state(group: Group, arrays: _Writer) -> dict[str, Any]:
    return {
        "name": group.name, "columns": list(group.columns), "one": group.one, "width": group.width,
        "steps": [_state(step, arrays) for step in group.steps],
    }  # fmt: skip


def _contents(data: bytes) -> tuple[dict[str, Any], Arrays]:
    try:
        file = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise Invalid(f"it is no zip file: {error}") from None
    with file:
        entries = file.infolist()
        names = [entry.filename for entry in entries]
        if len(names) > MOST_ENTRIES or len(set(names)) != len(names):
            raise Invalid("it has too many entries, or two of one name")
        for entry in entries:
            if entry.filename != MANIFEST and not _NAME.fullmatch(entry.filename):
                raise Invalid(f"it has an entry that no artefact has: {entry.filename[:80]!r}")
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise Invalid(f"the entry {entry.filename} is compressed, which no artefact is")
        if sum(entry.file_size for entry in entries) > len(data):
            raise Invalid("its entries claim to be larger than the file")
        if MANIFEST not in names or file.getinfo(MANIFEST).file_size > MOST_MANIFEST_BYTES:
            raise Invalid(f"it has no {MANIFEST}")
        try:
            document = json.loads(file.read(MANIFEST))
            if not isinstance(document, dict) or document.get("schema") != SCHEMA:
                found = document.get("schema") if isinstance(document, dict) else None
                raise Invalid(
                    f"it has schema {found!r}, not {SCHEMA}", hint="optimize again with this version of Shoal"
                )
            files = {name: file.read(name) for name in names if name != MANIFEST}
        except (zipfile.BadZipFile, UnicodeDecodeError, json.JSONDecodeError, EOFError, RecursionError) as error:
            raise Invalid(f"it is damaged: {error}") from None
    digests = document["sha256"]
    if set(digests) != set(files):
        raise Invalid("its arrays are not those that it names")
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != digests[name]:
            raise Invalid(f"it is damaged: {name} is not what was written")
    return document, {name: _array(content, name) for name, content in files.items()}


def _array(content: bytes, name: str) -> Array:
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
    except ValueError as error:
        raise Invalid(f"{name} is no array: {error}") from None
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise Invalid(f"{name} holds {dtype}, not numbers")
    if int(np.prod([1, *shape], dtype=object)) * dtype.itemsize != len(content) - stream.tell():
        raise Invalid(f"{name} claims another size than it has")
    stream.seek(0)
    array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _part(data: Mapping[str, Any], arrays: Arrays, kinds: Mapping[str, Any]) -> Any:
    if data["kind"] not in kinds:
        raise Invalid(f"it has a part of a kind that is not known: {str(data['kind'])[:40]!r}")
    own = {name: arrays[place] for name, place in data["arrays"].items()}
    return kinds[data["kind"]].restore(data["parameters"], own)


def _restored(document: Mapping[str, Any], arrays: Arrays, kind: type[Kind]) -> Kind:
    groups = []
    for one in document["groups"]:
        steps = tuple(_part(step, arrays, STEPS) for step in one["steps"])
        known = [step.width for step in steps if step.width is not None]
        if known and steps[-1].width is not None and known[-1] != one["width"]:
            raise ValueError(f"the group {one['name']} has another width than its steps")
        groups.append(Group(str(one["name"]), tuple(one["columns"]), bool(one["one"]), steps, int(one["width"])))
    stages = [Stage(tuple(one["groups"]), _part(one["model"], arrays, MODELS)) for one in document["stages"]]
    for stage in stages:
        width = sum(groups[place].width for place in stage.groups)
        takes = stage.model.features
        if width != takes:
            raise ValueError(f"a model of {takes} features reads {width}")
    cascade = kind(Program(groups, stages[-1:]), document["columns"])
    cascade.kinds = dict(zip(cascade.columns, map(str, document["kinds"]), strict=True))
    rules = tuple(tuple(rule_from_json(rule) for rule in of) for of in document["rules"])
    if any(len(of) != len(stages) - 1 or None in of for of in rules):
        raise ValueError("there are not as many rules as stages")
    expected = [Expected(**one) for one in document["expected"]]
    cascade.prepare(stages[:-1], rules, Test(document["test"]), Aim(**document["aim"]), expected)  # type: ignore[arg-type]  # none is None
    cascade.used = {role: arrays[name].astype(np.uint64) for role, name in document["used"].items()}
    cascade.report = dict(document["report"])
    cascade.digest = _digest(document)
    if document["filter"] is None and document["certificate"] is None:
        return cascade
    if void := _void(document):
        cascade.report |= {"reason": void, "approximated": 0.0}
        return cascade
    if document["filter"] is not None:
        own = document["filter"]
        stage = Stage(tuple(own["groups"]), _part(own["model"], arrays, MODELS))
        cascade.use_filter(stage, TopK.from_json(document["top_k"]))
    if document["certificate"] is not None:
        cascade.certificate = Certificate.from_json(document["certificate"])
        cascade.use(int(cascade.certificate.candidate))
    return cascade


def _void(document: Mapping[str, Any]) -> str:
    """Why its certificate does not hold for what it came with; empty where it does."""
    certified = document["certified"]
    if certified["version"] != CERTIFICATE:
        return f"its certificate is of version {certified['version']!r}, not {CERTIFICATE}"
    if certified["of"] != _digest(document):
        return "its certificate is for other columns or stages"
    changed = [name for name in _functions(document) if document["functions"].get(name) != code_digest(name)]
    return f"the code of {changed[0]} is not what was certified" if changed else ""


def _functions(document: Mapping[str, Any]) -> list[str]:
    """The functions that its steps name."""
    steps = [step for group in document["groups"] for step in group["steps"]]
    return sorted({str(step["parameters"]["function"]) for step in steps if "function" in step["parameters"]})


def _digest(document: Mapping[str, Any]) -> str:
    """Of what predicts, whatever certified it since."""
    rows = set(document["used"].values())
    arrays = {name: digest for name, digest in document["sha256"].items() if name not in rows}
    parts = [arrays, *(document[name] for name in ("columns", "kinds", "groups", "stages", "rules", "functions"))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
