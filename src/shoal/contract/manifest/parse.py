"""From text to a manifest, or to every problem of it at once with its field and line.

The way of a right JSON manifest is short, for it is the way of every submission. Lines are found only when something
is wrong, by composing the text again as YAML, which JSON is as well.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from shoal.contract.manifest.kinds import Kind, other_kind, other_kinds
from shoal.contract.manifest.schema import JOB, JobManifest
from shoal.contract.manifest.values import Part
from shoal.core import Invalid

if TYPE_CHECKING:  # reading YAML is loaded with the first text: a server that starts has none
    from shoal.contract.manifest.document import Document


class _Repeated(Exception):
    """A JSON object holds the same key twice."""


def parse_manifest(text: str | bytes, *, source: str = "manifest") -> JobManifest:
    """The job in this YAML or JSON text; `source` is what messages call the text.

    Raises Invalid, whose `problems` hold one error for each thing wrong, `where` being `source:LINE: field.path`.
    """
    manifest: JobManifest = parse_as(JOB, text, source=source)
    return manifest


def parse_stored(text: str, *, source: str) -> JobManifest:
    """The job in a text that `canonical_json` wrote, in half the time: a restart reads that of each job that waits."""
    try:
        return JobManifest.model_validate_json(text)
    except ValueError:
        return parse_manifest(text, source=source)  # says what is wrong, and where


def kind_of(text: str | bytes) -> Kind:
    """What kind of manifest a text means, by its `kind`, or without one by what it holds. Wrong texts mean jobs."""
    from shoal.contract.manifest.document import decode, read_document

    with contextlib.suppress(Invalid):
        values = read_document(decode(text, "manifest"), "manifest").value
        if "kind" in values:
            return (other_kind(values["kind"]) if isinstance(values["kind"], str) else None) or JOB
        return next((kind for kind in other_kinds() if not kind.marks.isdisjoint(values)), JOB)
    return JOB


def with_line(error: Invalid, text: str | bytes, *, source: str = "manifest") -> Invalid:
    """An error about a field of a text that was parsed, with `where` as `parse_manifest` has it, if the text has it."""
    from shoal.contract.manifest.document import decode, read_document

    document = read_document(decode(text, source), source)
    if error.where is None or (error.where,) not in document.lines:
        return error
    where = f"{source}:{document.line((error.where,))}: {error.where}"
    return Invalid(error.what, where=where, hint=error.hint, problems=error.problems)


def parse_as(kind: Kind, text: str | bytes, *, source: str = "manifest") -> Any:
    """The manifest of this kind, an instance of its model, as `parse_manifest` reads jobs."""
    from shoal.contract.manifest.document import decode, read_document

    text = decode(text, source)
    model: type[Part] = kind.model
    if text.lstrip().startswith("{"):
        try:
            return model.model_validate(_DECODER.decode(text))
        except (ValueError, RecursionError, _Repeated):
            pass  # also YAML in flow style; the careful way below knows, and says where
        text = _SURROGATES.sub(_character, text)
    document = read_document(text, source)
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        raise _report(error, document, kind) from None


def _report(error: ValidationError, document: Document, kind: Kind) -> Invalid:
    """Every problem of a document, in the order of its lines."""
    from shoal.contract.manifest.problems import explain

    problems = sorted(explain(error, document, kind), key=lambda found: found.line)
    errors = tuple(
        Invalid(found.what, where=f"{document.source}:{found.line}: {found.field}", hint=found.hint)
        for found in problems
    )
    if len(errors) == 1:
        return Invalid(errors[0].what, where=errors[0].where, hint=errors[0].hint, problems=errors)
    return Invalid(f"the manifest has {len(errors)} problems", where=document.source, problems=errors)


_SURROGATES = re.compile(r"\\\\|\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


def _character(match: re.Match[str]) -> str:
    """The one character that JSON writes as two escapes, which YAML does not know; an escaped backslash stays."""
    if match[1] is None:
        return match[0]
    return chr(0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Repeated
    return found


def _no_constant(name: str) -> float:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
