"""Runtimes are found by name and by suffix, and what they do not take is refused with what they would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.base import discover
from shoal.core import Invalid
from shoal.inference import BadModel, ModelSpec, RuntimeDeclaration, installed, open_runtime, runtime_named, runtime_of
from shoal.inference.registry import check_file, check_options, is_steady
from shoal.serve.manifest import check_runtimes, parse_service
from tests.packages import install

EXAMPLE = Path(__file__).parents[2] / "examples" / "runtime"

DECLARED = """\
from shoal.extension import Component

IT = Component(
    runtimes={
        "table": "shoal_table:TABLE",
        "broken": "shoal_table_that_is_not_there:X",
        "other": "shoal_table:Options",
    }
)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's runtime, and two entry points that are no runtimes, as an installed package of a stranger."""
    install(tmp_path / "stranger", "stranger", {"stranger_declared.py": DECLARED}, {"stranger": "stranger_declared:IT"})
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path / "stranger"))
    discover._catalogue.cache_clear()
    installed.cache_clear()
    yield
    discover._catalogue.cache_clear()
    installed.cache_clear()
    sys.modules.pop("shoal_table", None)
    sys.modules.pop("stranger_declared", None)


def spec(path: Path, text: str = "a,1\nb,2.5\n", **options: object) -> ModelSpec:
    path.write_text(text)
    return ModelSpec("prices", str(path), "table", options=options)


def test_serving_brings_four_runtimes_and_loads_none_of_them() -> None:
    assert {"callable", "onnx", "sklearn", "torch"} <= set(installed())
    assert all(isinstance(one, RuntimeDeclaration) and one.name == name for name, one in installed().items())
    own = ("callable", "onnx", "sklearn", "torch")
    assert [name for name in own if not is_steady(name)] == ["callable"]
    assert not is_steady("nowhere")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/b.onnx", "onnx"), ("B.ONNX", "onnx"), ("f.skops", "sklearn"), ("n.pt2", "torch"),
        ("n.safetensors", "torch"),        ("pkg.mod:Model", "callable"), ("x.bin", None), ("x", None),
    ],
)  # fmt: skip
def test_a_source_says_which_runtime_it_is_for(source: str, name: str | None) -> None:
    assert runtime_of(source) == name


def test_an_unknown_runtime_is_refused_with_those_that_are_installed() -> None:
    with pytest.raises(Invalid, match=r"no runtime 'tensorrt'.*installed here: .*onnx.*component declares") as caught:
        runtime_named("tensorrt", "models[0].runtime")
    assert caught.value.where == "models[0].runtime"
    with pytest.raises(BadModel, match="no runtime 'tensorrt'"):
        open_runtime(ModelSpec("m", "m.trt", "tensorrt"))


def test_a_manifest_with_an_unknown_runtime_can_be_read_but_not_deployed() -> None:
    """A stored one must stay readable after its runtime was uninstalled."""
    manifest = parse_service("name: a\nmodels:\n- {name: m, source: m.trt, runtime: tensorrt, options: {level: 3}}\n")
    assert manifest.spec("t", 1).models[0].options == {"level": 3}
    with pytest.raises(Invalid, match="no runtime 'tensorrt'"):
        check_runtimes(manifest)


def test_options_of_a_runtime_without_any_are_refused() -> None:
    with pytest.raises(Invalid, match=r"the runtime onnx has no options, and 'a', 'b' are given"):
        check_options(runtime_named("onnx"), {"b": 1, "a": 2})
    assert check_options(runtime_named("onnx"), {}) == {}


@pytest.mark.usefixtures("stranger")
def test_a_runtime_of_a_stranger_is_one_like_the_others(tmp_path: Path) -> None:
    assert runtime_of("prices.csv") == "table"
    assert parse_service("name: a\nmodels:\n- {name: m, source: p.csv}\n").models[0].runtime == "table"
    runtime = open_runtime(spec(tmp_path / "p.csv", default=9))
    assert runtime.metadata.platform == "csv_table"
    import numpy as np

    assert runtime.run({"key": np.array([b"b", b"z"], object)}, ())["value"].tolist() == [2.5, 9.0]


@pytest.mark.usefixtures("stranger")
def test_its_options_are_checked_where_they_are_written(tmp_path: Path) -> None:
    manifest = parse_service("name: a\nmodels:\n- {name: m, source: p.csv, options: {default: x}}\n")
    with pytest.raises(Invalid, match=r"valid number.*options of the runtime table: default") as caught:
        check_runtimes(manifest)
    assert caught.value.where == "models[0].options.default"
    with pytest.raises(BadModel, match="options of the runtime table: default"):
        open_runtime(spec(tmp_path / "p.csv", colour="red"))


@pytest.mark.usefixtures("stranger")
def test_a_broken_package_takes_no_other_runtime_away() -> None:
    assert {"onnx", "table"} <= set(installed())
    assert not {"broken", "other"} & set(installed())
    with pytest.raises(Invalid, match="the runtime 'broken' is installed, but its declaration cannot be loaded"):
        runtime_named("broken")


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needy = replace(runtime_named("onnx"), packages=("package_of_nowhere",), extra="serve")
    monkeypatch.setattr("shoal.inference.opening.runtime_named", lambda _name: needy)
    with pytest.raises(BadModel, match=r"needs package_of_nowhere.*pip install .*\[serve\]"):
        open_runtime(ModelSpec("m", str(tmp_path / "m.onnx")))


def test_a_file_is_looked_at_before_anything_is_started(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff location \xff")
    with pytest.raises(BadModel, match="no ONNX file"):
        check_file(runtime_named("onnx"), ModelSpec("m", str(path)))


@pytest.mark.parametrize("options", ["{a: .nan}", "{a: [1, .inf]}", "[1]", f"{{a: {'x' * 20_000}}}"])
def test_options_that_are_no_plain_values_or_too_many_are_refused(options: str) -> None:
    with pytest.raises(Invalid):
        parse_service(f"name: a\nmodels:\n- {{name: m, source: m.onnx, options: {options}}}\n")


def test_a_model_without_options_is_stored_as_before() -> None:
    manifest = parse_service("name: a\nmodels:\n- {name: m, source: m.onnx}\n")
    assert "options" not in manifest.canonical_json()


def test_a_slip_of_the_pen_is_answered_with_the_word_meant() -> None:
    with pytest.raises(Invalid, match=r"no runtime 'onxx'.*did you mean onnx\?"):
        runtime_named("onxx")
