"""Runtimes through the one door `open_runtime`: they run, they say what they are, and they refuse what they must."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.memory import give_back, resident_now
from shoal.inference.opening import open_runtime, open_warm
from shoal.inference.runtime import Runtime
from shoal.inference.types import DataType, ModelSpec, TensorSpec
from tests.serve import models


def onnx_spec(path: Path, **more: Any) -> ModelSpec:
    return ModelSpec("m", str(path), **more)


def refused(spec: ModelSpec) -> str:
    with pytest.raises(BadModel) as error:
        open_warm(spec)
    assert error.value.where == f"model {spec.name!r} version {spec.version}"
    assert error.value.hint
    return str(error.value)


# --- ONNX ---


def test_an_onnx_model_runs_and_describes_itself(tmp_path: Path) -> None:
    runtime = open_runtime(onnx_spec(models.linear(tmp_path / "m.onnx"), max_batch=8))
    w, b = models.linear_weights()
    x = np.random.default_rng(1).random((5, 4), np.float32)
    np.testing.assert_allclose(runtime.run({"x": x}, ())["y"], x @ w + b, rtol=1e-5)
    meta = runtime.metadata
    assert (meta.name, meta.versions, meta.platform, meta.max_batch) == ("m", ("1",), "onnxruntime_onnx", 8)
    assert meta.inputs == (TensorSpec("x", DataType.FP32, (-1, 4)),)
    assert meta.outputs == (TensorSpec("y", DataType.FP32, (-1, 3)),)
    runtime.close()


def test_only_the_outputs_asked_for_are_given(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["z"])], "two",
        [models.value("x", TensorProto.FLOAT, ["n"])],
        [models.value("y", TensorProto.FLOAT, ["n"]), models.value("z", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    runtime = open_runtime(onnx_spec(models.save(graph, tmp_path / "m.onnx")))
    x = np.array([-1.0, 2.0], np.float32)
    assert list(runtime.run({"x": x}, ["z"])) == ["z"]
    assert list(runtime.run({"x": x}, ())) == ["y", "z"]


def test_strings_pass_through_an_onnx_model(tmp_path: Path) -> None:
    runtime = open_runtime(onnx_spec(models.identity(tmp_path / "m.onnx", TensorProto.STRING)))
    assert list(runtime.run({"x": np.array(["é".encode(), b""], object)}, ())["y"]) == ["é", ""]
    with pytest.raises(BadRequest, match="not UTF-8"):
        runtime.run({"x": np.array([b"\xff"], object)}, ())


def test_an_error_of_the_model_is_typed(tmp_path: Path) -> None:
    runtime = open_runtime(onnx_spec(models.gather(tmp_path / "m.onnx")))
    with pytest.raises(ModelFailed, match="indices element out of data bounds"):
        runtime.run({"x": np.array([99])}, ())
    assert runtime.run({"x": np.array([3])}, ())["y"] == [3]


def test_the_threads_are_as_specified_and_do_not_spin(tmp_path: Path) -> None:
    import threading

    path = models.linear(tmp_path / "m.onnx")
    before, of_python = threads_of_process(), threading.active_count()
    runtime = open_runtime(onnx_spec(path, threads=3))
    assert threads_of_process() - before == 2  # besides the caller's
    runtime.close()
    assert threads_of_process() == before
    assert threading.active_count() == of_python
    single = open_runtime(onnx_spec(path, threads=1))
    assert threads_of_process() == before
    single.close()


def threads_of_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.few(count=2)
@pytest.mark.parametrize("kept", [0, 1, 40, 0.5, -1])
def test_a_truncated_file_is_a_bad_model(tmp_path: Path, kept: float) -> None:
    path = models.linear(tmp_path / "m.onnx")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept) if isinstance(kept, float) else kept])
    assert "m.onnx" in refused(onnx_spec(path))


@pytest.mark.few(count=2)
@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_a_bad_model(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(random.Random(seed).randbytes(500))
    refused(onnx_spec(path))


@pytest.mark.few(count=4)
@pytest.mark.parametrize("seed", range(15))
def test_a_damaged_model_is_refused_or_runs_but_never_ends_the_process(tmp_path: Path, seed: int) -> None:
    path, data = tmp_path / "m.onnx", bytearray(models.linear(tmp_path / "good.onnx").read_bytes())
    rng = random.Random(seed)
    for _ in range(3):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    with contextlib.suppress(BadModel):
        open_warm(onnx_spec(path))


def test_a_file_must_have_the_digest_that_is_named(tmp_path: Path) -> None:
    path = models.linear(tmp_path / "m.onnx")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    open_runtime(onnx_spec(path, sha256=digest.upper())).close()
    assert f"the sha256 of m.onnx is {digest}, not 00" in refused(onnx_spec(path, sha256="00"))


def test_a_missing_file_is_a_bad_model(tmp_path: Path) -> None:
    assert "No such file" in refused(onnx_spec(tmp_path / "none.onnx"))
    (tmp_path / "folder.onnx").mkdir()
    assert "Is a directory" in refused(onnx_spec(tmp_path / "folder.onnx"))


def test_external_data_beside_the_model_is_used(tmp_path: Path) -> None:
    data = np.array([1, 2, 3, 4], np.float32)
    runtime = open_runtime(onnx_spec(models.external(tmp_path / "m.onnx", "w.bin", data=data.tobytes())))
    np.testing.assert_array_equal(runtime.run({"x": np.zeros((1, 4), np.float32)}, ())["y"], [data])


@pytest.mark.few(count=3)
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../secret", "lies outside the model's directory"),
        ("/etc/hostname", "is not a relative path"),
        ("a/../../secret", "lies outside the model's directory"),
        ("link", "lies outside the model's directory"),
        ("nowhere", "is no file"),
        ("*/_ORT_MEM_ADDR_/*", "is no file"),
        ("", "is not a relative path"),
    ],
)
def test_external_data_elsewhere_is_refused(tmp_path: Path, location: str, why: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    assert why in refused(onnx_spec(models.external(folder / "m.onnx", location)))


def test_external_data_is_found_however_deep_it_hides(tmp_path: Path) -> None:
    """A tensor within an attribute of a node within a branch of another node."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/hostname")
    constant = helper.make_node("Constant", [], ["b"])
    constant.attribute.add(name="value", t=tensor, type=4)
    branch = helper.make_graph([constant], "branch", [], [models.value("b", TensorProto.FLOAT, [1])])
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], "g",
        [models.value("c", TensorProto.BOOL, [])], [models.value("y", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert "keeps data in '/etc/hostname'" in refused(onnx_spec(path))


def test_an_operator_that_onnxruntime_lacks_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Evil", ["x"], ["y"], domain="my.ops")], "g",
        [models.value("x", TensorProto.FLOAT, ["n"])], [models.value("y", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())
    assert "Evil" in refused(onnx_spec(path))


def test_a_type_that_the_protocol_lacks_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x"], ["y"])], "g",
        [models.value("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    assert "'y' is of type seq(tensor(float))" in refused(onnx_spec(models.save(graph, tmp_path / "m.onnx")))


# --- batches and warm-up ---


def test_a_fixed_first_dimension_has_no_room_for_batches(tmp_path: Path) -> None:
    path = models.linear(tmp_path / "m.onnx", batch=1)
    assert "input 'x' has shape [1, 4]: no room for batches of 8" in refused(onnx_spec(path, max_batch=8))
    assert open_runtime(onnx_spec(path)).metadata.max_batch == 0


def test_an_output_that_is_not_the_batchs_is_found_out_in_the_warm_up(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)], "sum",
        [models.value("x", TensorProto.FLOAT, ["n", 2])], [models.value("y", TensorProto.FLOAT, ["m", 1])],
    )  # fmt: skip
    path = models.save(graph, tmp_path / "m.onnx")
    assert "output 'y' has shape [1, 1] for a batch of 4" in refused(onnx_spec(path, max_batch=4))


def test_the_warm_up_runs_alone_and_with_the_largest_batch_and_reports_each(tmp_path: Path) -> None:
    ticks = iter(range(1000))
    spec = onnx_spec(models.linear(tmp_path / "m.onnx"), max_batch=4, warmup=3)
    _, report = open_warm(spec, clock=lambda: float(next(ticks)))
    assert [(runs.batch, runs.seconds) for runs in report.runs] == [(1, (1.0,) * 3), (4, (1.0,) * 3)]
    assert report.load_s == 1.0
    assert report.warmup_s > 6
    assert report.metadata.max_batch == 4


def test_the_memory_of_a_model_is_measured_and_given_back(tmp_path: Path) -> None:
    spec = onnx_spec(models.heavy(tmp_path / "m.onnx", megabytes=24))
    for _ in range(2):  # the second one finds the memory that the first one left
        runtime, report = open_warm(spec)
        assert 24e6 < report.resident_bytes < 36e6
        held = resident_now()
        runtime.close()
        del runtime
        give_back()
        assert held - resident_now() > 20e6


def test_free_dimensions_are_as_long_in_the_warm_up_as_declared(tmp_path: Path) -> None:
    spec = models.callable_spec("negative", warmup=1, inputs=(TensorSpec("x", DataType.FP32, (-1, 7)),), max_batch=2)
    _, report = open_warm(spec)
    assert [runs.batch for runs in report.runs] == [1, 2]
    path = models.identity(tmp_path / "m.onnx", shape=("n", "m"))
    fixed = (TensorSpec("x", DataType.FP32, (-1, 7)),)
    open_warm(onnx_spec(path, inputs=fixed, max_batch=2))
    misspelt = (TensorSpec("X", DataType.FP32, (-1, 7)),)
    assert "`inputs` declares X, which the model does not have (its inputs: x)" in refused(
        onnx_spec(path, inputs=misspelt)
    )


def test_a_model_that_lacks_something_outside_is_loaded_all_the_same() -> None:
    _, report = open_warm(models.callable_spec("lacks", warmup=3))
    assert report.runs == ()


def test_a_model_that_fails_on_zeros_is_refused_with_a_way_out() -> None:
    told = refused(models.callable_spec("fail", warmup=1))
    assert "on zeros of shape {'x': [1, 1]}: ValueError: never" in told
    assert "set warmup: 0" in told


# --- callables ---


def test_a_class_is_made_once_and_says_itself_what_it_takes() -> None:
    runtime = open_runtime(ModelSpec("c", "tests.serve.models:Counter", "callable"))
    x = np.zeros((1, 1), np.float32)
    assert [int(runtime.run({"x": x}, ())["calls"][0]) for _ in range(3)] == [1, 2, 3]
    assert runtime.metadata.outputs[0].name == "calls"
    runtime.close()


@pytest.mark.few(count=4)
@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("../models:echo", "names no callable"),
        ("tests.serve.nowhere:f", "cannot be imported: ModuleNotFoundError"),
        ("tests.serve.models:FEATURES", "is not callable"),
        ("tests.serve.models:echo", "does not say what its inputs are"),
        ("tests.serve.models", "names no callable"),
        ("tests.serve.models:", "names no callable"),
        ("tests.serve.models:nothing", "cannot be imported: AttributeError"),
        ("tests.serve.models:Broken", "Broken() failed: RuntimeError: no device"),
        ("tests.serve.models:Mute", "Mute has no __call__"),
    ],
)
def test_what_cannot_be_called_is_refused(source: str, complaint: str) -> None:
    assert complaint in refused(ModelSpec("c", source, "callable"))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("negative", "ValueError: a negative number"),
        ("nothing_at_all", "it returned NoneType, not arrays by name"),
        ("misnamed", "it returned no y"),
        ("ragged", "ValueError: setting an array element with a sequence"),
    ],
)
def test_what_a_callable_does_wrong_is_the_models_failure(name: str, complaint: str) -> None:
    runtime = open_runtime(models.callable_spec(name))
    with pytest.raises(ModelFailed, match=complaint):
        runtime.run({"x": np.full((1, 1), -1, np.float32)}, ())


# --- scikit-learn and torch ---


@pytest.mark.few(count=2)
@pytest.mark.parametrize("kind", ["sklearn", "onnx", "torch"])
@pytest.mark.parametrize("suffix", [".pkl", ".joblib", ".pickle"])
def test_a_pickle_is_never_opened(tmp_path: Path, kind: str, suffix: str) -> None:
    if kind == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    path = tmp_path / f"m{suffix}"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "opened")))
    sides = (TensorSpec("x", DataType.FP32, (-1,)),)
    told = refused(ModelSpec("m", str(path), kind, inputs=sides, outputs=sides))
    assert "runs any code in it" in told
    assert "skops" in told
    assert not (tmp_path / "opened").exists()


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_scikit_learn_model_as_onnx_is_run_by_onnxruntime(tmp_path: Path) -> None:
    path = models.linear(tmp_path / "m.onnx")
    runtime = open_runtime(ModelSpec("m", str(path), "sklearn"))
    assert runtime.metadata.platform == "onnxruntime_onnx"


def skops() -> Any:
    return pytest.importorskip("skops.io", reason="skops is not installed")


def fitted(**options: Any) -> tuple[Any, Any]:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.random((40, 3))
    return LogisticRegression(**options).fit(x, (x[:, 0] > 0.5).astype(np.int64)), x


def test_a_skops_file_runs_as_scikit_learn_would(tmp_path: Path) -> None:
    io = skops()
    model, x = fitted()
    io.dump(model, tmp_path / "m.skops")
    runtime, _ = open_warm(ModelSpec("m", str(tmp_path / "m.skops"), "sklearn", max_batch=8))
    assert runtime.metadata.inputs == (TensorSpec("X", DataType.FP64, (-1, 3)),)
    assert [(each.name, each.datatype, each.shape) for each in runtime.metadata.outputs] == [
        ("predict", DataType.INT64, (-1,)), ("predict_proba", DataType.FP64, (-1, 2)),
    ]  # fmt: skip
    given = runtime.run({"X": x[:5]}, ())
    np.testing.assert_array_equal(given["predict"], model.predict(x[:5]))
    np.testing.assert_allclose(given["predict_proba"], model.predict_proba(x[:5]))


@pytest.mark.slow
def test_the_packages_of_a_runtime_are_no_part_of_a_models_memory(tmp_path: Path) -> None:
    skops().dump(fitted()[0], tmp_path / "m.skops")
    program = (
        "from shoal.inference.opening import open_warm; from shoal.inference.types import ModelSpec; "
        f"print(open_warm(ModelSpec('m', {str(tmp_path / 'm.skops')!r}, 'sklearn'))[1].resident_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # the first one
    assert int(done.stdout) < 20e6


def test_a_skops_regressor_says_what_it_really_gives(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import FunctionTransformer

    io, features = skops(), np.arange(8, dtype=np.float64).reshape(4, 2)
    for model, output in (
        (LinearRegression().fit(features, features), TensorSpec("predict", DataType.FP64, (-1, -1))),
        (LinearRegression().fit(features, features[:, 0]), TensorSpec("predict", DataType.FP64, (-1,))),
        (FunctionTransformer().fit(features.astype(np.int64)), TensorSpec("transform", DataType.INT64, (-1, -1))),
    ):
        io.dump(model, tmp_path / "m.skops")
        datatype = DataType.INT64 if output.datatype is DataType.INT64 else DataType.FP64
        spec = ModelSpec("m", str(tmp_path / "m.skops"), "sklearn", inputs=(TensorSpec("X", datatype, (-1, 2)),))
        runtime, report = open_warm(spec)
        assert report.metadata.outputs == (output,)
        runtime.close()


def test_a_skops_file_with_a_foreign_type_is_refused(tmp_path: Path) -> None:
    io = skops()
    from sklearn.preprocessing import FunctionTransformer

    io.dump(FunctionTransformer(models.echo), tmp_path / "m.skops")
    told = refused(ModelSpec("m", str(tmp_path / "m.skops"), "sklearn"))
    assert "not known to be safe: tests.serve.models.echo" in told


def test_a_damaged_skops_file_is_a_bad_model(tmp_path: Path) -> None:
    skops()
    (tmp_path / "m.skops").write_bytes(b"PK\3\4nonsense")
    assert "cannot be loaded" in refused(ModelSpec("m", str(tmp_path / "m.skops"), "sklearn"))


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


SIDES: dict[str, Any] = {
    "inputs": (TensorSpec("x", DataType.FP32, (-1, 4)),),
    "outputs": (TensorSpec("y", DataType.FP32, (-1, 2)),),
}


def check_torch(runtime: Runtime, module: Any) -> None:
    x = np.random.default_rng(0).random((3, 4), np.float32)
    x.flags.writeable = False
    expected = module(torch().from_numpy(x.copy())).detach().numpy()
    np.testing.assert_allclose(runtime.run({"x": x}, ())["y"], expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_runs(tmp_path: Path) -> None:
    module = torch().nn.Linear(4, 2)
    torch().jit.save(torch().jit.script(module), str(tmp_path / "m.pt"))
    runtime, _ = open_warm(ModelSpec("m", str(tmp_path / "m.pt"), "torch", max_batch=4, **SIDES))
    check_torch(runtime, module)


def test_safetensors_run_with_the_module_that_they_belong_to(tmp_path: Path) -> None:
    module = torch().nn.Linear(4, 2)
    pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file(
        module.state_dict(), tmp_path / "m.safetensors"
    )
    source = f"tests.serve.models:torch_linear@{tmp_path / 'm.safetensors'}"
    runtime, _ = open_warm(ModelSpec("m", source, "torch", **SIDES))
    check_torch(runtime, module)


def test_files_that_torch_would_unpickle_are_refused(tmp_path: Path) -> None:
    torch().save(torch().nn.Linear(4, 2), tmp_path / "m.pt")
    assert "not opened" in refused(ModelSpec("m", str(tmp_path / "m.pt"), "torch", **SIDES))
    (tmp_path / "m.pt2").write_bytes(b"")
    assert "hold pickles" in refused(ModelSpec("m", str(tmp_path / "m.pt2"), "torch", **SIDES))
