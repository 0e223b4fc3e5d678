"""The real networks: what the catalogue says holds, and each answers real inputs rightly.

The small ones are fetched by every run (18 MB, once); the others by `make test-slow`. Where there is no
package index they are skipped, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import (
    MODELS,
    SMALL,
    Modality,
    Model,
    cached,
    default_cache,
    fetch,
    find,
    sample,
    samples,
    sounds,
    stack,
    unstack,
)
from models.inputs import voice_call, voice_windows
from models.samples import file_features
from networks import app
from typer.testing import CliRunner, Result

from shoal.core import NotFound, Unavailable
from shoal.inference.opening import open_runtime
from shoal.inference.runtime import Runtime
from shoal.inference.types import TensorSpec
from shoal.serve.manifest import parse_service

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "examples" / "models"


def each(*, but: str | None = None) -> list[Any]:
    """All names but one; those that are not small are for `make test-slow`."""
    return [
        pytest.param(model.name, marks=() if model.name in SMALL else pytest.mark.slow)
        for model in MODELS
        if model.name != but
    ]


# --- the catalogue ---


def test_there_are_enough_models_of_enough_kinds() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS) >= 8
    assert {model.modality for model in MODELS} == set(Modality)
    assert len({model.sha256 for model in MODELS}) == len(MODELS)


def test_the_default_tests_download_little() -> None:
    assert sum(find(name).wheel.size_bytes for name in SMALL) < 20e6


def test_everything_may_be_used_and_says_where_it_is_from() -> None:
    for model in MODELS:
        assert model.licence.split()[0] in {"Apache-2.0", "MIT"}
        assert model.source.startswith("https://github.com/")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_with_batches_has_them_first_everywhere(model: Model) -> None:
    firsts = {tensor.shape[0] for tensor in (*model.inputs, *model.outputs)}
    assert firsts == ({-1} if model.takes_batches else {1})
    assert model.takes_batches or model.max_batch == 1
    assert all(-1 not in tensor.shape[1:] for tensor in (*model.inputs, *model.outputs))


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match="no model 'resnet'") as refused:
        find("resnet")
    assert "magika" in str(refused.value.hint)


def test_the_manifests_deploy_what_the_catalogue_has() -> None:
    written = {path.stem: parse_service(path.read_text(), source=path.name) for path in MANIFESTS.glob("*.yaml")}
    assert set(written) == {model.name for model in MODELS}
    for name, service in written.items():
        (deployed,) = (one.spec() for one in service.models)
        model = find(name)
        expected = model.spec(f"models/{model.file}")
        # A file of fixed sizes says them itself, and so does a callable.
        assert deployed.inputs in ((), expected.inputs)
        assert (service.name, replace(deployed, inputs=(), outputs=())) == (
            name,
            replace(expected, inputs=(), outputs=()),
        )


def test_where_a_file_takes_any_size_its_manifest_fixes_one() -> None:
    free = {"orientation", "text-detection", "text-recognition"}
    for name in free:
        (deployed,) = parse_service((MANIFESTS / f"{name}.yaml").read_text()).models
        assert deployed.spec().inputs == find(name).inputs


def test_the_pages_name_every_model_with_its_licence_and_size() -> None:
    overview = (ROOT / "docs" / "how-to" / "models.md").read_text().splitlines()
    costs = (MANIFESTS / "README.md").read_text().splitlines()
    for model in MODELS:
        row = f"| `{model.name}` |"
        assert any(line.startswith(row) and model.licence in line for line in overview)
        assert any(line.startswith(row) and f"| {model.size_bytes / 1e6:.1f} |" in line for line in costs)


def test_no_weights_are_kept_in_the_repository() -> None:
    assert "models/" in (MANIFESTS / ".gitignore").read_text()
    assert not [path for path in (ROOT / "src").rglob("*") if path.suffix in {".onnx", ".whl", ".pt"}]


# --- inputs ---


@contextmanager
def skipped_where_absent() -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_inputs_are_as_the_model_wants_them_and_the_same_each_time(model: Model) -> None:
    with skipped_where_absent():
        first, second, other = sample(model.name, 7), sample(model.name, 7), sample(model.name, 8)

    assert [*first.inputs] == [tensor.name for tensor in model.inputs]
    for tensor in model.inputs:
        array = first.inputs[tensor.name]
        assert (array.shape, array.dtype) == (_single(tensor), {"FP32": np.float32, "INT32": np.int32}[tensor.datatype])
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, second.inputs[tensor.name])
    assert first.what == second.what
    assert any(not np.array_equal(first.inputs[name], other.inputs[name]) for name in first.inputs)


def _single(tensor: TensorSpec) -> tuple[int, ...]:
    return (1, *tensor.shape[1:])


@given(st.binary(max_size=10_000))
def test_file_features_are_what_magika_describes(content: bytes) -> None:
    """Its rules, one byte at a time: strip, cut to 1,024, pad; a short file is stripped at both ends."""
    short = len(content) <= 4096
    first = list(content.strip() if short else content[:4096].lstrip())[:1024]
    last = list(content.strip() if short else content[-4096:].rstrip())[-1024:]

    expected = first + [256] * (1024 - len(first)) + [256] * (1024 - len(last)) + last

    assert file_features(content).tolist() == expected


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_calls_that_are_stacked_can_be_taken_apart(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = [{"a": rng.random((1, 3)), "b": rng.random((1, 2, 2))} for _ in range(count)]

    for call, again in zip(calls, unstack(stack(calls)), strict=True):
        assert call.keys() == again.keys()
        assert all(np.array_equal(call[name], again[name]) for name in call)


def test_windows_of_a_voice_overlap_by_their_context() -> None:
    audio = np.arange(2000, dtype=np.float32)

    windows = voice_windows(audio)

    assert windows.shape == (3, 576)
    np.testing.assert_array_equal(windows[0, :64], np.zeros(64))
    np.testing.assert_array_equal(np.concatenate(windows[:, 64:]), audio[:1536])
    np.testing.assert_array_equal(windows[1:, :64], windows[:-1, -64:])


# --- the networks ---

_unreachable: list[str] = []


def opened(name: str) -> Runtime:
    """The model as a replica opens it, from the cache, or fetched; skips where it cannot be."""
    model = find(name)
    if cached(model) is None and _unreachable:
        pytest.skip(_unreachable[0])
    try:
        paths = fetch([name])
    except Unavailable as error:
        _unreachable.append(f"{name} is not in {default_cache()}, and cannot be fetched: {error}")
        pytest.skip(_unreachable[0])
    return open_runtime(model.spec(paths[name]))


@pytest.mark.parametrize("name", each())
def test_a_network_answers_real_inputs_rightly(name: str) -> None:
    model, runtime = find(name), opened(name)
    assert [tensor.name for tensor in runtime.metadata.inputs] == [tensor.name for tensor in model.inputs]
    assert [tensor.datatype for tensor in runtime.metadata.inputs] == [tensor.datatype for tensor in model.inputs]

    with skipped_where_absent():
        shown = samples(name, 12, seed=50_000)
    wrong = []
    for one in shown:
        outputs = runtime.run(one.inputs, ())
        assert {key: array.shape for key, array in outputs.items()} == {
            tensor.name: _single(tensor) for tensor in model.outputs
        }
        verdict = one.check(outputs)
        if not verdict.right:
            wrong.append(f"{one.what}: {verdict.says}")
    assert wrong == []


@pytest.mark.parametrize("name", each(but="page-layout"))  # its file has a fixed batch of one
def test_a_batch_answers_as_its_calls_do_alone(name: str) -> None:
    runtime = opened(name)
    with skipped_where_absent():
        shown = samples(name, 4)

    together = unstack(runtime.run(stack([one.inputs for one in shown]), ()))

    for one, of_batch in zip(shown, together, strict=True):
        alone = runtime.run(one.inputs, ())
        for key, expected in alone.items():
            np.testing.assert_allclose(of_batch[key], expected, rtol=1e-3, atol=1e-4)
        assert one.check(of_batch).right


@pytest.mark.parametrize("name", each(but="moderation"))  # whose photographs are all safe for work
def test_a_check_does_not_approve_of_any_answer(name: str) -> None:
    """The right answer to one call is wrong for some other."""
    runtime = opened(name)
    with skipped_where_absent():
        shown = samples(name, 6)
    answers = [runtime.run(one.inputs, ()) for one in shown]

    assert not all(one.check(answer).right for one in shown for answer in answers)


@pytest.mark.slow
def test_a_stream_of_speech_is_told_from_one_without() -> None:
    runtime = opened("silero-vad")
    for seed in range(3):
        spoken = _probabilities(runtime, sounds.speech(np.random.default_rng(seed), 2.0))
        silent = _probabilities(runtime, sounds.quiet(np.random.default_rng(seed), 2.0)[1])
        assert spoken.mean() > 0.5 > 0.15 > silent.max()


def _probabilities(runtime: Runtime, audio: sounds.Audio) -> np.ndarray[Any, np.dtype[np.float32]]:
    state, found = None, []
    for window in voice_windows(audio):
        outputs = runtime.run(voice_call(window, state), ())
        state = outputs["stateN"]
        found.append(outputs["output"][0, 0])
    return np.array(found)


@pytest.mark.slow
def test_streams_that_are_batched_keep_their_states_apart() -> None:
    runtime = opened("silero-vad")
    streams = [voice_windows(sounds.speech(np.random.default_rng(seed), 1.0)) for seed in range(4)]
    alone = [_probabilities(runtime, sounds.speech(np.random.default_rng(seed), 1.0)) for seed in range(4)]

    states: list[Any] = [None] * 4
    together = []
    for windows in zip(*streams, strict=True):
        calls = [voice_call(window, state) for window, state in zip(windows, states, strict=True)]
        answers = unstack(runtime.run(stack(calls), ()))
        states = [answer["stateN"] for answer in answers]
        together.append([answer["output"][0, 0] for answer in answers])

    np.testing.assert_allclose(np.transpose(together), alone, atol=1e-5)


def test_a_voice_without_its_network_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MANIFESTS))
    from voice import VoiceActivity

    monkeypatch.setenv("SHOAL_MODELS", str(tmp_path))
    with pytest.raises(Unavailable, match=str(tmp_path)) as failed:
        VoiceActivity()
    assert failed.value.hint == "python benchmarks/networks.py fetch silero-vad"


# --- the command line ---


def run(*words: str, code: int = 0, **env: str) -> Result:
    result = CliRunner().invoke(app, words, env=env, prog_name="models")
    assert result.exit_code == code, result.output
    return result


def test_the_list_tells_what_is_cached(tmp_path: Path) -> None:
    listed = json.loads(run("list", "--json", SHOAL_MODELS=str(tmp_path)).stdout)
    assert [row["name"] for row in listed] == [model.name for model in MODELS]
    assert {row["path"] for row in listed} == {None}
    assert [row["name"] for row in listed if row["small"]] == [model.name for model in MODELS if model.name in SMALL]

    for_people = run("list", SHOAL_MODELS=str(tmp_path)).stdout.splitlines()
    assert len(for_people) == 1 + len(MODELS)


def test_an_unknown_name_is_a_clear_error_for_people_and_programs() -> None:
    for_people = run("fetch", "resnet", code=3)
    assert for_people.stdout == ""
    assert for_people.stderr.startswith("error: there is no model 'resnet'\n")
    assert "hint: known: orientation" in for_people.stderr

    (error,) = json.loads(run("fetch", "resnet", "--json", code=3).stderr).values()
    assert (error["code"], error["what"]) == ("not-found", "there is no model 'resnet'")


def test_fetching_prints_paths_and_nothing_else_on_stdout() -> None:
    opened("magika")
    path = str(cached(find("magika")))

    assert run("fetch", "magika").stdout == f"{path}\n"
    assert json.loads(run("fetch", "magika", "--json").stdout) == {"magika": path}


def test_checking_and_timing_say_what_they_found() -> None:
    opened("magika")

    judged = json.loads(run("check", "magika", "-n", "3", "--json").stdout)
    assert [one["right"] for one in judged] == [True] * 3
    assert run("check", "magika", "-n", "2").stderr.endswith("2 of 2 right\n")

    timed = json.loads(run("bench", "magika", "--seconds", "0", "--json").stdout)
    (row,) = timed["models"]
    assert row["name"] == "magika"
    assert 0 < row["single_s"] < row["batch_of_8_s"]
    assert row["runs"] >= 40
    assert "onnxruntime" in timed["machine"]
