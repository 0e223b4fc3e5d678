"""How a model is run, as the command line says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.core import Invalid
from shoal.serve.commands.options import read_options
from shoal.serve.commands.services import _manifest
from shoal.serve.manifest import ServiceManifest


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {}),
        (["precision=int8"], {"precision": "int8"}),
        (["set.sr=16000", "set.name=a=b", "deep.er.still=true"], {
            "set": {"sr": 16000, "name": "a=b"}, "deep": {"er": {"still": True}},
        }),
        (["a=[1, 2.5]", 'b={"c": null}', "d=", "e=NaN"], {"a": [1, 2.5], "b": {"c": None}, "d": "", "e": "NaN"}),
    ],
)  # fmt: skip
def test_options_are_json_where_they_can_be_and_text_else(words: list[str], options: dict[str, Any]) -> None:
    assert read_options(words) == options


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a"], "is no option"), (["=1"], "is no option"), (["a..b=1"], "is no option"),
        (["a=1", "a=2"], "given twice"), (["a=1", "a.b=2"], "is a value already"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        read_options(words)


def model_of(values: object) -> Any:
    return ServiceManifest.model_validate(values).models[0]


def test_a_model_file_is_deployed_as_it_was_said(tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(b"x")
    given = {"runtime": "sklearn", "options": {"a": 1}, "threads": 2, "max_batch": 8}
    values, _ = _manifest(tmp_path / "net.bin", {}, given, {})
    found = model_of(values)
    assert (found.runtime, found.options, found.threads, found.max_batch) == ("sklearn", {"a": 1}, 2, 8)


def test_single_options_of_a_manifest_are_changed_and_those_of_another_runtime_dropped(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("name: s\nmodels:\n- {name: m, source: m.onnx, options: {a: 1, b: 2}, max_batch: 4}\n")
    values, _ = _manifest(path, {}, {"options": {"b": 3}}, {})
    assert (model_of(values).options, model_of(values).max_batch) == ({"a": 1, "b": 3}, 4)
    values, _ = _manifest(path, {}, {"runtime": "sklearn"}, {})
    assert (model_of(values).options, model_of(values).runtime) == (None, "sklearn")
    assert _manifest(path, {}, {}, {}) == (path, None)


def test_options_of_one_model_are_refused_for_a_service_of_two(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("name: s\nmodels: [{name: m, source: m.onnx}, {name: n, source: n.onnx}]\n")
    with pytest.raises(Invalid, match=r"2 models.*say threads in the manifest"):
        _manifest(path, {}, {"threads": 2}, {})
