"""What a right manifest means: its values, its canonical form, and what it says to the rest of the control plane."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.manifest import (
    JOB,
    JobManifest,
    Kind,
    Placement,
    manifest_schema,
    other_kinds,
    parse_manifest,
    parse_stored,
)
from shoal.core import ANY, Fault, Invalid, PriorityClass, Resources
from shoal.serve.manifest import parse_service

EXAMPLES = sorted(
    path for name in ("job", "elastic") for path in (Path(__file__).parents[2] / "examples").glob(f"*/{name}.yaml")
)
DIGEST = "sha256:" + "0a" * 32


def job(**fields: Any) -> JobManifest:
    return parse_manifest(json.dumps({"name": "a", "command": ["true"], **fields}))


def test_only_a_name_and_a_command_are_needed() -> None:
    manifest = parse_manifest("name: a\ncommand: python train.py --name 'two words'\n")
    assert manifest.argv() == ("python", "train.py", "--name", "two words")
    assert manifest.resources_per_rank() == Resources(cpu_milli=1000)
    assert (manifest.kind, manifest.ranks, manifest.priority, manifest.grace_s) == ("job", 1, 0, 10.0)
    assert manifest.priority_class is PriorityClass.BEST_EFFORT
    assert manifest.placement is Placement.PACK
    assert manifest.max_runtime_s is manifest.expected_runtime_s is manifest.deadline_at(5.0) is None
    assert [manifest.retry_limit(fault) for fault in Fault] == [0, 3, 5]


def test_yaml_and_json_mean_the_same() -> None:
    body = {"name": "a", "command": ["x", "1"], "env": {"A": "no"}, "resources": {"memory": "2Gi"}, "ranks": 2}
    assert parse_manifest(yaml.safe_dump(body)) == parse_manifest(json.dumps(body)) == parse_manifest(
        json.dumps(body, indent="\t").encode()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (0, {}),
        (2, {ANY: 2}),
        ("a100", {"a100": 1}),
        ("a100:4", {"a100": 4}),
        ({"type": "h200", "count": 3}, {"h200": 3}),
        ({"count": 3}, {ANY: 3}),
    ],
)
def test_accelerators_may_be_short(given_: Any, expected: dict[str, int]) -> None:
    assert job(resources={"accelerators": given_}).resources_per_rank().accelerators == expected


@pytest.mark.parametrize(
    ("given_", "expected"),
    [(3, (3, 3)), ({"min": 1, "max": 4}, (1, 4)), ({"max": 4}, (1, 4)), ({"min": 2, "max": 2}, (2, 2))],
)
def test_a_gang_has_a_size_or_a_range_of_them(given_: Any, expected: tuple[int, int]) -> None:
    manifest = job(ranks=given_)
    assert (manifest.min_ranks, manifest.max_ranks) == expected
    assert (manifest == job(ranks=expected[0])) == (expected[0] == expected[1])


def test_fractions_of_cores_are_thousandths() -> None:
    assert job(resources={"cpus": 0.25, "memory": "512MiB"}).resources_per_rank() == Resources(
        cpu_milli=250, memory_bytes=512 << 20
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172_800), ("500ms", 0.5), (90, 90), (0.5, 0.5)],
)
def test_durations(text: Any, seconds: float) -> None:
    assert job(max_runtime=text).max_runtime_s == seconds


@given(
    days=st.integers(0, 99), hours=st.integers(0, 23), minutes=st.integers(0, 59), seconds=st.integers(1, 59)
)  # fmt: skip
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert job(max_runtime=f"{days}d{hours}h{minutes}m{seconds}s").max_runtime_s == expected


@given(number=st.integers(1, 900), unit=st.sampled_from("MGT"), style=st.sampled_from(["", "B", "i", "iB", " "]))
def test_sizes_are_powers_of_1000_or_of_1024(number: int, unit: str, style: str) -> None:
    text = f"{number} {unit}B" if style == " " else f"{number}{unit}{style}"
    base = 1024 if "i" in style else 1000
    expected = number * base ** (" KMGT".index(unit))
    if expected < 1 << 20:
        with pytest.raises(Invalid, match="out of range"):
            job(resources={"memory": text})
    else:
        assert job(resources={"memory": text}).resources.memory == expected


def test_a_deadline_is_a_moment_or_counts_from_submission() -> None:
    assert job(deadline="2h").deadline_at(100.0) == 7300.0
    moment = job(deadline="1970-01-01T02:00:00+01:00")
    assert moment.deadline == "1970-01-01T01:00:00Z"
    assert moment.deadline_at(99.0) == 3600.0


def test_an_entrypoint_becomes_a_python_command() -> None:
    by_module = parse_manifest("name: a\nentrypoint: pkg.train")
    by_function = parse_manifest("name: a\nentrypoint: pkg.train:main")
    assert by_module.argv() == ("python", "-m", "pkg.train")
    assert by_function.argv("python3") == ("python3", "-c", "from pkg.train import main; main()")


def test_secrets_may_be_a_list_or_a_mapping() -> None:
    assert job(secrets=["HF_TOKEN"]).secrets == {"HF_TOKEN": "HF_TOKEN"}
    assert job(secrets={"HF_TOKEN": "hugging-face"}).secrets == {"HF_TOKEN": "hugging-face"}


def test_never_means_no_retry_and_limits_are_by_fault() -> None:
    assert [job(restart={"on": "never"}).retry_limit(fault) for fault in Fault] == [0, 0, 0]
    limits = {"user": 2, "platform": 0, "infrastructure": 9}
    assert [job(restart={"limits": limits}).retry_limit(fault) for fault in Fault] == [2, 0, 9]


def test_backoff_doubles_up_to_a_minute() -> None:
    manifest = job(restart={"backoff": "5s"})
    assert [manifest.backoff_s(retry) for retry in (1, 2, 3, 4, 5, 500)] == [5, 10, 20, 40, 60, 60]
    assert job(restart={"backoff": "2m"}).backoff_s(1) == 120
    assert job(restart={"backoff": 0}).backoff_s(3) == 0


def test_transfers_name_both_ends() -> None:
    manifest = job(
        inputs=[{"from": "s3://b/train", "to": "./data//x/"}, {"from": "/srv/d", "to": "d"}],
        outputs=[{"from": "model", "to": "memory://out"}],
        checkpoint={"directory": "file:///srv/ckpt"},
    )
    assert [(item.source, item.target) for item in manifest.inputs] == [("s3://b/train", "data/x"), ("/srv/d", "d")]
    assert [(item.source, item.target) for item in manifest.outputs] == [("model", "memory://out")]
    assert manifest.checkpoint.directory == "file:///srv/ckpt"


def test_uploading_replaces_the_files_by_their_bundle() -> None:
    manifest = job(files=["train.py", "data/*.csv"], max_runtime="5m", priority_class="guaranteed")
    uploaded = manifest.with_bundle(DIGEST)
    assert (uploaded.files, uploaded.bundle) == ((), DIGEST)
    assert uploaded.with_bundle(DIGEST) == uploaded
    assert (uploaded.max_runtime_s, uploaded.priority_class) == (300, PriorityClass.GUARANTEED)
    assert manifest.fingerprint() != uploaded.fingerprint()


def test_unquoted_yes_and_no_are_text() -> None:
    manifest = parse_manifest("name: no\ncommand: [echo, yes, on, 12:30]\nrestart: {on: never}\nenv: {DEBUG: off}")
    assert manifest.argv() == ("echo", "yes", "on", "12:30")
    assert (manifest.name, manifest.env, manifest.restart.on) == ("no", {"DEBUG": "off"}, "never")


def test_a_manifest_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        job().name = "b"  # type: ignore[misc]


def test_the_order_of_names_does_not_matter() -> None:
    one, two = job(env={"A": "1", "B": "2"}), job(env={"B": "2", "A": "1"})
    assert one.canonical_json() == two.canonical_json()
    assert re.fullmatch(r"[0-9a-f]{64}", one.fingerprint())
    assert one.fingerprint() == two.fingerprint() != job(env={"A": "1"}).fingerprint()


_words = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
_plain_words = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20)
_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
_env_names = st.text(string.ascii_uppercase, min_size=1, max_size=8).filter(lambda name: name not in ("RANK",))
_durations = st.one_of(st.integers(1, 600), st.floats(0.001, 600), st.sampled_from(["1s", "2m30s", "250ms"]))
_paths = st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=3).map("/".join)
_locations = st.one_of(_paths.map("/{}".format), _paths.map("s3://{}".format), _paths.map("memory://{}".format))


def manifests(words: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"name": _names, "command": st.lists(words.filter(bool), min_size=1, max_size=4)},
        optional={
            "kind": st.just("job"),
            "tenant": _names,
            "description": words,
            "labels": st.dictionaries(words, words, max_size=3),
            "files": st.lists(_paths, max_size=3),
            "env": st.dictionaries(_env_names.map("E_{}".format), words, max_size=3),
            "secrets": st.dictionaries(_env_names.map("S_{}".format), _names, max_size=3),
            "resources": st.fixed_dictionaries(
                {},
                optional={
                    "accelerators": st.one_of(st.integers(0, 64), st.sampled_from(["a100", "h200:3"])),
                    "cpus": st.floats(0, 512),
                    "memory": st.one_of(st.integers(1 << 20, 1 << 50), st.sampled_from(["1GiB", "1.5GB"])),
                },
            ),
            "ranks": st.one_of(
                st.integers(1, 512),
                st.builds(
                    lambda least, more: {"min": least, "max": least + more}, st.integers(1, 99), st.integers(0, 99)
                ),
                st.fixed_dictionaries({"max": st.integers(1, 10_000)}),
            ),
            "priority_class": st.sampled_from(list(PriorityClass)),
            "priority": st.integers(-100, 100),
            "placement": st.sampled_from(list(Placement)),
            "restart": st.fixed_dictionaries(
                {},
                optional={
                    "on": st.sampled_from(["failure", "never"]),
                    "limits": st.dictionaries(st.sampled_from(list(Fault)), st.integers(0, 99)),
                    "backoff": _durations,
                },
            ),
            "deadline": st.one_of(_durations, st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat())),
            "max_runtime": _durations,
            "expected_runtime": _durations,
            "grace": _durations,
            "inputs": st.lists(st.fixed_dictionaries({"from": _locations, "to": _paths}), max_size=2),
            "outputs": st.lists(st.fixed_dictionaries({"from": _paths, "to": _locations}), max_size=2),
            "checkpoint": st.fixed_dictionaries({}, optional={"directory": _locations}),
            "metrics": st.fixed_dictionaries(
                {}, optional={"jsonl": _paths, "regex": st.just({"loss": r"loss=(?P<value>\S+) at (?P<step>\d+)"})}
            ),
        },
    )


def test_a_stored_manifest_that_is_wrong_says_what(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no field `speed`") as caught:
        parse_stored('{"kind":"job","name":"a","command":["true"],"speed":1}', source="j-1")
    assert caught.value.where == "j-1:1: speed"


@given(body=manifests(_words))
def test_the_canonical_json_of_a_manifest_is_that_manifest(body: dict[str, Any]) -> None:
    manifest = parse_manifest(json.dumps(body))
    assert parse_stored(manifest.canonical_json(), source="stored") == manifest
    again = parse_manifest(manifest.canonical_json())
    assert again == manifest
    assert again.canonical_json() == manifest.canonical_json()
    assert again.fingerprint() == manifest.fingerprint()


@given(body=manifests(_plain_words))
def test_the_careful_reader_agrees_with_the_fast_one(body: dict[str, Any]) -> None:
    text = json.dumps(body)
    assert parse_manifest("# a comment is not JSON\n" + text) == parse_manifest(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_are_right(path: Path) -> None:
    manifest = parse_manifest(path.read_bytes(), source=path.name)
    assert path.stem != "job" or manifest.name == path.parent.name
    assert all((path.parent / name).is_file() for name in manifest.files)


def test_the_schema_names_every_field_and_closes_every_mapping() -> None:
    schema = manifest_schema()
    assert set(schema["properties"]) == set(JobManifest.model_fields)
    assert schema["additionalProperties"] is False
    assert all(part["additionalProperties"] is False for part in schema["$defs"].values() if "properties" in part)
    assert set(schema["$defs"]["Input"]["properties"]) == {"from", "to", "cached"}
    json.dumps(schema)


def test_the_manifest_in_the_documentation_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "manifest.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert blocks
    jobs = {parse_manifest(block).name for block in blocks if block.startswith("name:")}
    services = {parse_service(block).name for block in blocks if block.startswith("kind: service")}
    assert "resnet" in jobs
    assert "ocr" in services


@pytest.mark.parametrize("kind", [JOB, *other_kinds()], ids=lambda kind: kind.name)
def test_every_field_says_what_it_means(kind: Kind) -> None:
    silent = [
        (*path, name) for path in kind.parts for name, field in kind.fields(path).items() if not field.description
    ]
    assert silent == []


def test_fields_are_found_where_lists_and_mappings_hold_them() -> None:
    (service,) = other_kinds()
    assert "from" in JOB.fields(JOB.place(["inputs"]))
    assert JOB.place(["restart", "limits"]) == ("restart", "limits")
    assert service.place(["models", "inputs"]) == ("models", "*", "inputs", "*")
    assert "shares" in service.fields(service.place(["routes"]))
    assert JOB.fields(JOB.place(["nothing"])) == {}
