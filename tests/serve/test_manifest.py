"""What a service's manifest means, and what is told of a wrong one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JOB, kind_of, parse_manifest
from shoal.core import ANY, Fault, Invalid, PriorityClass, Resources
from shoal.inference.types import DataType, StatePair, TensorSpec
from shoal.serve.live import steps
from shoal.serve.live.replicas import replica_job, replica_manifest
from shoal.serve.manifest import SERVICE, ServiceManifest, parse_service, service_schema
from shoal.serve.types import Route

DIGEST = "sha256:" + "0a" * 32
MODEL = {"name": "m", "source": "m.onnx"}
TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
LOWER, EMPTY = {**TENSOR, "datatype": "fp32"}, {**TENSOR, "shape": [0]}
ALONE = {"shares": {"1": 1}}


def service(**fields: Any) -> ServiceManifest:
    return parse_service(json.dumps({"name": "ocr", "models": [MODEL], **fields}), source="service.yaml")


def refuse(text: str) -> Invalid:
    with pytest.raises(Invalid) as caught:
        parse_service(text, source="service.yaml")
    return caught.value


# --- what it means ---


def test_only_a_name_and_a_model_are_needed() -> None:
    manifest = parse_service("name: ocr\nmodels:\n- {name: m, source: ./m.onnx}\n")
    assert (manifest.kind, manifest.rollout, manifest.replicas) == ("service", "surge", None)
    assert manifest.priority_class is PriorityClass.GUARANTEED
    assert manifest.resources_per_replica() == Resources(cpu_milli=1000)
    assert manifest.uploads() == ("m.onnx",)
    spec = manifest.spec("ada", 2)
    assert (spec.name, spec.tenant, spec.replicas, spec.slo_p99_s) == ("ocr", "ada", 2, None)
    assert spec.routes == (("m", Route((("1", 1.0),))),)
    (model,) = spec.models
    assert (model.source, model.runtime, model.version, model.threads) == ("m.onnx", "onnx", "1", 1)


@pytest.mark.parametrize(
    ("source", "runtime", "file"),
    [
        ("a/b.onnx", "onnx", "a/b.onnx"),
        ("forest.skops", "sklearn", "forest.skops"),
        ("pkg.mod:Model", "callable", None),
        ("pkg:Model.method", "callable", None),
        ("net.pt2", "torch", "net.pt2"),
        ("pkg.mod:Net@weights/net.safetensors", "torch", "weights/net.safetensors"),
        ("unknown.bin", "onnx", "unknown.bin"),
    ],
)
def test_a_source_says_how_it_is_run_and_what_is_uploaded(source: str, runtime: str, file: str | None) -> None:
    tensors = {"inputs": [TENSOR], "outputs": [TENSOR]}
    manifest = service(models=[{"name": "m", "source": source, **tensors}])
    assert manifest.models[0].runtime == runtime
    assert manifest.uploads() == ((file,) if file else ())


def test_models_elsewhere_are_not_uploaded_and_urls_are_fetched_by_each_replica() -> None:
    manifest = service(
        models=[
            {"name": "a", "source": "/srv/a.onnx"},
            {"name": "b", "source": "s3://models/b.onnx", "version": 3},
            {"name": "c", "source": "c.onnx"},
        ],
        files=["labels.txt", "c.onnx"],
    )
    assert manifest.uploads() == ("labels.txt", "c.onnx")
    assert [model.source for model in manifest.spec("t", 1).models] == ["/srv/a.onnx", "models/b-3/b.onnx", "c.onnx"]
    uploaded = manifest.with_bundle(DIGEST)
    assert (uploaded.uploads(), uploaded.bundle, uploaded.files) == ((), DIGEST, ())
    job = replica_manifest(record(uploaded), uploaded, 0, socket="/run/s")
    assert [(one.source, one.target) for one in job.inputs] == [("s3://models/b.onnx", "models/b-3/b.onnx")]


def test_of_several_versions_the_last_takes_all_unless_a_route_says_otherwise() -> None:
    models = [MODEL, {**MODEL, "source": "m2.onnx", "version": 2}]
    assert service(models=models).spec("t", 1).routes == (("m", Route((("2", 1.0),))),)
    routed = service(models=models, routes={"m": {"shares": {"1": 0.9, "2": 0.1}, "shadow": "2", "shadow_share": 0.5}})
    assert routed.spec("t", 1).routes == (("m", Route((("1", 0.9), ("2", 0.1)), "2", 0.5)),)


def test_options_and_state_reach_the_gateway() -> None:
    pairs = [{"input": "h", "output": "hn"}, {"input": "c", "output": "cn"}]
    model = {**MODEL, "state": pairs, "max_sequences": 7, "sequence_idle": "5m", "options": {"a": [1, {"b": True}]}}
    (found,) = service(models=[model]).spec("ada", 1).models
    assert found.state == (StatePair("h", "hn"), StatePair("c", "cn"))
    assert (found.max_sequences, found.sequence_idle_s, found.options) == (7, 300.0, {"a": [1, {"b": True}]})
    (plain,) = service(models=[MODEL]).spec("ada", 1).models
    assert (plain.state, plain.max_sequences, plain.sequence_idle_s, plain.options) == ((), 1000, 60.0, {})


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        ([{"input": "h", "output": "a"}, {"input": "h", "output": "b"}], "is in two pairs"),
        ([{"input": "h", "output": "a"}, {"input": "k", "output": "a"}], "is in two pairs"),
        ([], "models[0].state"),
        ([{"input": "h"}], "models[0].state[0].output"),
    ],
)
def test_state_pairs_that_make_no_sense_are_refused(state: Any, complaint: str) -> None:
    assert complaint in str(refuse(json.dumps({"name": "a", "models": [{**MODEL, "state": state}]})).problems[0])


def test_a_long_grace_is_the_replicas_for_open_sequences() -> None:
    def words(grace: str) -> list[str]:
        manifest = service(models=[MODEL], grace=grace)
        return [*replica_manifest(record(manifest), manifest, 0, socket="/run/s").argv()]

    assert words("10m")[-2:] == ["--leave-within", "600"]
    assert "--leave-within" not in words("30s")


def test_limits_objectives_and_tensors_reach_the_gateway() -> None:
    model = {**MODEL, "inputs": [TENSOR], "threads": 2, "max_batch": 8, "warmup": 0, "sha256": "a" * 64}
    manifest = service(
        models=[model], slo={"p99": "50ms"}, rate_limit=0.5, burst="2s", resources={"memory": "1GiB"},
        priority_class="best-effort",
    )  # fmt: skip
    spec = manifest.spec("ada", 1)
    assert (spec.slo_p99_s, spec.rate_limit, spec.burst_s, spec.memory_bytes) == (0.05, 0.5, 2.0, 1 << 30)
    assert spec.priority_class is PriorityClass.BEST_EFFORT
    assert spec.models[0].inputs == (TensorSpec("x", DataType.FP32, (-1, 3)),)
    assert (spec.models[0].threads, spec.models[0].max_batch, spec.models[0].sha256) == (2, 8, "a" * 64)


def test_the_canonical_form_is_a_manifest_and_means_the_same() -> None:
    manifest = service(
        models=[{**MODEL, "version": 2}], routes={"m": {"shares": {"2": 1}}}, slo={"p99": 0.05}, secrets=["HUB"],
        env={"B": "1", "A": "2"}, replicas=0, resources={"accelerators": "a100:2"},
    )  # fmt: skip
    assert parse_service(manifest.canonical_json()) == manifest
    assert parse_service(manifest.canonical_json()).fingerprint() == manifest.fingerprint()
    assert list(manifest.env) == ["A", "B"]


@pytest.mark.parametrize(
    ("fields", "replaces"),
    [
        ({"env": {"A": "1"}}, True),
        ({"models": [{**MODEL, "threads": 2}]}, True),
        ({"bundle": DIGEST}, True),
        ({"resources": {"cpus": 2.0}}, True),
        ({"secrets": ["HUB"]}, True),
        ({"priority_class": "best-effort"}, True),
        ({"grace": "30s"}, True),
        ({"slo": {"p99": "1s"}}, False),
        ({"routes": {"m": {"shares": {"1": 1.0}}}}, False),
        ({"rate_limit": 2}, False),
        ({"replicas": 5}, False),
        ({"labels": {"a": "b"}, "description": "x"}, False),
        ({"rollout": "replace"}, False),
    ],
)
def test_replicas_are_replaced_only_where_they_would_run_something_else(fields: dict[str, Any], replaces: bool) -> None:
    assert (service(**fields).replica_fingerprint() != service().replica_fingerprint()) is replaces
    assert service(**fields).fingerprint() != service().fingerprint()


def record(manifest: ServiceManifest) -> Any:
    return steps.create("s-1", manifest, tenant="ada", actor="ada", now=5.0, key=None).after


def test_a_replica_is_a_job_that_never_ends_by_itself() -> None:
    manifest = service(
        models=[{**MODEL, "threads": 3}], env={"MKL_NUM_THREADS": "1", "X": "y"}, secrets={"HUB": "hub"}, bundle=DIGEST,
        resources={"accelerators": 2, "cpus": 1.5, "memory": "2GiB"}, grace="30s",
    )  # fmt: skip
    job = replica_job(record(manifest), manifest, 7, socket="/run/s.sock", now=9.0)
    assert (job.id, job.name, job.owner_id, job.state) == ("s-1-7", "ocr-7-1", "s-1", JobState.QUEUED)
    assert job.resources == Resources({ANY: 2}, 1500, 2 << 30)
    runs = parse_manifest(job.manifest)
    assert runs.argv() == (
        "python", "-m", "shoal.serve.replica", "--connect", "/run/s.sock", "--name", "ada/ocr-7-1",
    )  # fmt: skip
    assert dict(runs.env) == {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3", "X": "y"}
    assert (runs.secrets, runs.bundle, runs.grace_s) == ({"HUB": "hub"}, DIGEST, 30.0)
    assert runs.endless
    assert [runs.backoff_s(retry) for retry in (1, 2, 3, 4, 20)] == [0, 1, 2, 4, 60]
    assert runs.retry_limit(Fault.USER) == float("inf")
    assert (runs.forgives(59), runs.forgives(60)) == (False, True)


def test_what_is_a_service_says_so_by_its_kind_or_its_models() -> None:
    assert kind_of("kind: service\n") is SERVICE
    assert kind_of('{"name": "a", "models": []}') is SERVICE
    assert kind_of("kind: job\nmodels: []") is JOB
    assert kind_of("name: a\ncommand: x") is JOB
    assert kind_of("- what\n") is JOB
    assert kind_of("'") is JOB
    assert kind_of("kind: [service]") is JOB
    assert kind_of("kind: unheard-of") is JOB


# --- what is told of a wrong one ---


def test_all_problems_are_told_at_once_in_the_order_of_lines() -> None:
    error = refuse("""\
name: Ocr_Fast
models:
  - {name: ocr, source: model.pkl}
  - {name: ocr, source: b.onnx, version: 2, thread: 4}
  - {name: ocr, source: c.onnx, version: 2}
  - {nam: 1}
routes:
  ocr: {shares: {"1": 0.9, "3": 0.2}, shadow: 9}
slo: {p98: 50ms}
gpus: 2
replicas: 1.5
""")
    assert error.what == f"the manifest has {len(error.problems)} problems"
    assert [str(problem.where).removeprefix("service.yaml:") for problem in error.problems] == [
        "1: name", "3: models[0].source", "4: models[1].thread", "5: models[2].version", "6: models[3].name",
        "6: models[3].source", "6: models[3].nam", "8: routes.ocr.shares.3", "8: routes.ocr.shares",
        "8: routes.ocr.shadow", "9: slo.p99", "9: slo.p98", "10: gpus", "11: replicas",
    ]  # fmt: skip


BAD_FIELDS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"kind": "job"}, "kind", "this is a job", "`shoal submit`"),
    ({"name": "a" * 49}, "name", "is not a name", "at most 48"),
    ({"models": []}, "models", "there is nothing in it", "{name: ..., source: ...}"),
    ({"models": {"a": 1}}, "models", "must be a list, and a mapping is not", "{name: ..., source: ...}"),
    ({"models": None}, "models", "the field `models` is missing", "what to serve"),
    ({"models": [{"name": "a b", "source": "x"}]}, "models[0].name", "is not a model's name", "at most 64"),
    ({"models": [{**MODEL, "version": "a b"}]}, "models[0].version", "is not a version", "2024-05"),
    ({"models": [{**MODEL, "version": 1.5}]}, "models[0].version", "1.5 is read as a number", 'quote it: "1.5"'),
    ({"models": [{**MODEL, "source": "a.joblib"}]}, "models[0].source", "is a pickle", "skops.io.dump"),
    ({"models": [{**MODEL, "source": "p:M@w.pkl"}]}, "models[0].source", "'w.pkl' is a pickle", "skl2onnx"),
    ({"models": [{**MODEL, "source": "../m.onnx"}]}, "models[0].source", "leads out of the run directory", "'..'"),
    ({"models": [{**MODEL, "source": "s3://u:p@b/m"}]}, "models[0].source", "holds a password", "`secrets`"),
    ({"models": [{**MODEL, "runtime": "callable"}]}, "models[0].source", "is not a callable", "module:attribute"),
    ({"models": [{**MODEL, "source": "m.pt"}]}, "models[0]", "does not say what the model takes", "`outputs`"),
    ({"models": [{**MODEL, "threads": 0}]}, "models[0].threads", "0 is out of range", "at least 1"),
    ({"models": [{**MODEL, "sha256": "A" * 64}]}, "models[0].sha256", "is not a SHA-256", "sha256sum"),
    ({"models": [{**MODEL, "path": "x"}]}, "models[0].path", "no field `path`", "did you mean `source`?"),
    ({"models": [{**MODEL, "inputs": [LOWER]}]}, "models[0].inputs[0].datatype", "'fp32'", "FP32"),
    ({"models": [{**MODEL, "inputs": [EMPTY]}]}, "models[0].inputs[0].shape[0]", "0 is no length", "-1"),
    ({"models": [{**MODEL, "inputs": "x"}]}, "models[0].inputs", "must be a list", "{name: ..., datatype: ..."),
    ({"models": [MODEL, MODEL]}, "models[1].version", "version 1 of model m is named twice", "`version`"),
    ({"routes": {"x": {"shares": {"1": 1}}}}, "routes.x", "there is no model x", "models here: m"),
    ({"routes": {"m": {"shares": {"2": 1}}}}, "routes.m.shares.2", "m has no version 2", "versions of m: 1"),
    ({"routes": {"m": {"shares": {"1": 0.5}}}}, "routes.m.shares", "the shares sum to 0.5", "sum to 1"),
    ({"routes": {"m": {"shares": {"1": 2}}}}, "routes.m.shares.1", "2 is out of range", "at most 1"),
    ({"routes": {"m": {"shares": {"1": 1}, "shadow": "7"}}}, "routes.m.shadow", "m has no version 7", "versions"),
    ({"routes": {"m": {**ALONE, "shadow_share": 0.5}}}, "routes.m.shadow_share", "no `shadow`", "under `shadow`"),
    ({"routes": {"m": {}}}, "routes.m.shares", "the field `shares` is missing", ""),
    ({"slo": "50ms"}, "slo", "must be a mapping of fields", "its fields: p99"),
    ({"slo": {"p99": "fast"}}, "slo.p99", "'fast' is not a duration", "30s"),
    ({"slo_p99": "50ms"}, "slo_p99", "no field `slo_p99`", "did you mean `slo.p99`?"),
    ({"rate_limit": 0}, "rate_limit", "0 is out of range", "more than 0"),
    ({"replicas": -1}, "replicas", "-1 is out of range", "at least 0"),
    ({"rollout": "fast"}, "rollout", "'fast' is not a choice here", "allowed: surge or replace"),
    ({"files": ["m.onnx"], "bundle": DIGEST}, "files", "are bundled already", "keep one"),
    ({"secrets": ["A"], "env": {"A": "x"}}, "secrets.A", "the name is in `env` as well", "keep it in one"),
    ({"env": {"SHOAL_X": "1"}}, "env.SHOAL_X", "SHOAL_X is set by Shoal", "remove it"),
    ({"command": ["true"]}, "command", "no field `command`", "allowed: kind, name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field", "what", "hint"), BAD_FIELDS, ids=[f"{x[1]}-{x[2][:20]}" for x in BAD_FIELDS]
)
def test_a_bad_field(fields: dict[str, Any], field: str, what: str, hint: str) -> None:
    body = {key: value for key, value in {"name": "a", "models": [MODEL], **fields}.items() if value is not None}
    problems = refuse(json.dumps(body, indent=1)).problems
    (found,) = [one for one in problems if str(one.where).split(": ", 1)[1] == field]
    assert what in found.what
    assert hint in (found.hint or "")
    assert len(problems) == 1


def test_every_mapping_of_the_schema_is_known_to_the_messages() -> None:
    for path, model in SERVICE.parts.items():
        assert len(SERVICE.field_names(path)) == len(model.model_fields)
    assert service_schema()["title"] == "Shoal service manifest"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_models = st.lists(
    st.dictionaries(st.sampled_from(["name", "source", "version", "runtime", "inputs", "x"]), _json, max_size=4),
    max_size=3,
)
_routes = st.dictionaries(
    st.sampled_from(["m", "x"]),
    st.dictionaries(
        st.sampled_from(["shares", "shadow", "shadow_share"]), _json | st.dictionaries(st.text(max_size=2), _json)
    ),
)


@given(field=st.sampled_from(SERVICE.field_names(())), value=_json, models=_models | st.just([MODEL]), routes=_routes)
def test_anything_anywhere_is_taken_or_refused_with_its_place(field: str, value: Any, models: Any, routes: Any) -> None:
    body = {"name": "a", "models": models, "routes": routes, field: value}
    parsed = taken_or_refused(json.dumps(body))
    if isinstance(parsed, Invalid):
        assert parsed.problems
        assert all(str(problem.where).startswith("manifest") and problem.what for problem in parsed.problems)
        return
    assert parse_service(parsed.canonical_json()) == parsed
    assert parsed.spec("t", 1).models


def taken_or_refused(text: str) -> ServiceManifest | Invalid:
    try:
        return parse_service(text)
    except Invalid as error:
        return error
