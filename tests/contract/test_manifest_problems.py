"""Bad manifests at the public door: what was wrong, on which line, in which field, and what to do about it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.manifest import MAX_BYTES, parse_manifest
from shoal.contract.manifest.schema import JOB
from shoal.core import Invalid, ShoalError


def refuse(text: str | bytes) -> Invalid:
    with pytest.raises(Invalid) as caught:
        parse_manifest(text, source="job.yaml")
    return caught.value


def problems(text: str | bytes) -> dict[str, ShoalError]:
    """The problems by `LINE: field`."""
    found = {str(problem.where).removeprefix("job.yaml:"): problem for problem in refuse(text).problems}
    assert len(found) == len(refuse(text).problems)
    return found


def test_all_problems_are_told_at_once_in_the_order_of_lines() -> None:
    text = """\
name: Digits_SGD
comand: python train.py
resources:
  accelerators: {type: a100, cnt: 2}
  memory: 4 potatoes
  gpus: 1
env:
  LR: 0.1
ranks: 0

inputs:
  - {from: data/x, to: ../etc}
  - from: s3://bucket/x
"""
    error = refuse(text)
    assert error.what == f"the manifest has {len(error.problems)} problems"
    assert error.where == "job.yaml"
    assert [problem.where for problem in error.problems] == [
        "job.yaml:1: name",
        "job.yaml:1: command",
        "job.yaml:2: comand",
        "job.yaml:4: resources.accelerators.cnt",
        "job.yaml:5: resources.memory",
        "job.yaml:6: resources.gpus",
        "job.yaml:8: env.LR",
        "job.yaml:9: ranks",
        "job.yaml:12: inputs[0].from",
        "job.yaml:12: inputs[0].to",
        "job.yaml:13: inputs[1].to",
    ]


def test_a_single_problem_is_the_error_itself() -> None:
    error = refuse("name: a\ncommand: x\nranks: many\n")
    said = "must be a whole number, and 'many' is not (or give a range, such as {min: 1, max: 4})"
    assert str(error) == f"job.yaml:3: ranks: {said}"
    assert len(error.problems) == 1


BAD_FIELDS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"kind": "service"}, "kind", "this is a service", "`shoal deploy`"),
    ({"kind": "jobs"}, "kind", "'jobs' is not a choice here", "allowed: job"),
    ({"name": "a" * 64}, "name", "is not a name", "at most 63"),
    ({"name": "-a"}, "name", "'-a' is not a name", "lower-case"),
    ({"tenant": "A B"}, "tenant", "'A B' is not a name", "lower-case"),
    ({"command": []}, "command", "the command is empty", "[python, train.py]"),
    ({"command": ""}, "command", "the command is empty", "[python, train.py]"),
    ({"command": 'python "x'}, "command", "no closing quotation", "as a list"),
    ({"command": {"a": "b"}}, "command", "must be a list, and a mapping is not", "words, or one line that is split"),
    ({"command": ["a", 1]}, "command[1]", "1 is read as a number", 'quote it: "1"'),
    ({"command": ["a\x00"]}, "command[0]", "holds a NUL character", "remove it"),
    ({"command": None, "entrypoint": "a b"}, "entrypoint", "'a b' is not an entrypoint", "package.module:function"),
    ({"command": None, "entrypoint": "a.b:"}, "entrypoint", "'a.b:' is not an entrypoint", "package.module"),
    ({"command": None, "entrypoint": "a.class"}, "entrypoint", "is not an entrypoint", "package.module"),
    ({"command": None}, "command", "the job has nothing to run", "`command` or an `entrypoint`"),
    ({"entrypoint": "a.b"}, "entrypoint", "there is a command already", "keep one"),
    ({"files": ["/etc/passwd"]}, "files[0]", "is not below the manifest's directory", "relative to the manifest"),
    ({"files": ["../x"]}, "files[0]", "is not below the manifest's directory", "`inputs`"),
    ({"files": "train.py"}, "files", "must be a list, and 'train.py' is not", ""),
    ({"bundle": "sha256:0"}, "bundle", "'sha256:0' is not a bundle's digest", "64 hexadecimal"),
    ({"files": ["a"], "bundle": "sha256:" + "0" * 64}, "files", "are bundled already", "keep one"),
    ({"env": {"LR": 0.1}}, "env.LR", "0.1 is read as a number, not as text", 'quote it: "0.1"'),
    ({"env": {"LR": True}}, "env.LR", "true is read as true or false, not as text", 'quote it: "true"'),
    ({"env": {"LR": None}}, "env.LR", "null is read as null, not as text", 'quote it: "null"'),
    ({"env": {"2X": "a"}}, "env.2X", "'2X' is not a variable's name", "not first a digit"),
    ({"env": {"RANK": "0"}}, "env.RANK", "RANK is set by Shoal", "remove it"),
    ({"env": {"SHOAL_RUN": "0"}}, "env.SHOAL_RUN", "SHOAL_RUN is set by Shoal", "remove it"),
    ({"env": ["A=b"]}, "env", "must be a mapping of names to values", ""),
    ({"secrets": {"MASTER_PORT": "x"}}, "secrets.MASTER_PORT", "is set by Shoal", "remove it"),
    ({"secrets": {"A": "a b"}}, "secrets.A", "'a b' is not a secret's name", "stored secret"),
    ({"secrets": ["A"], "env": {"A": "x"}}, "secrets.A", "the name is in `env` as well", "keep it in one"),
    ({"resources": 3}, "resources", "must be a mapping of fields", "accelerators, cpus, memory"),
    ({"resources": {"accelerators": -1}}, "resources.accelerators.count", "-1 is out of range", "at least 0"),
    ({"resources": {"accelerators": True}}, "resources.accelerators", "must be a mapping of fields", "type, count"),
    ({"resources": {"accelerators": "a100:x"}}, "resources.accelerators", "is not TYPE:COUNT", "a100:2"),
    ({"resources": {"accelerators": "A 100"}}, "resources.accelerators.type", "accelerator's type", "shoal nodes"),
    ({"resources": {"cpus": "2"}}, "resources.cpus", "must be a number, and '2' is not", ""),
    ({"resources": {"cpus": -0.5}}, "resources.cpus", "-0.5 is out of range", "at least 0"),
    ({"resources": {"memory": "512"}}, "resources.memory", "'512' is not a size", "512MiB"),
    ({"resources": {"memory": 512}}, "resources.memory", "512 is out of range", "with its unit"),
    ({"resources": {"memory": "9P"}}, "resources.memory", "'9P' is out of range", "1024TiB"),
    ({"resources": {"memory": 0}}, "resources.memory", "a process cannot run in no memory", "leave it out"),
    ({"ranks": 0}, "ranks", "0 is out of range", "at least 1"),
    ({"ranks": 1.5}, "ranks", "must be a whole number, and 1.5 is not", ""),
    ({"ranks": True}, "ranks", "must be a whole number, and true is not", ""),
    ({"ranks": 10**30}, "ranks", "a huge number is out of range", "at most 10000"),
    ({"ranks": [1, 4]}, "ranks", "must be a whole number, and a list is not", "a range, such as {min: 1, max: 4}"),
    ({"ranks": {"min": 1}}, "ranks.max", "the field `max` is missing", "{min: 1, max: 4}"),
    ({"ranks": {"min": 0, "max": 4}}, "ranks.min", "0 is out of range", "at least 1"),
    ({"ranks": {"min": 1, "max": "all"}}, "ranks.max", "must be a whole number, and 'all' is not", ""),
    ({"ranks": {"min": 5, "max": 4}}, "ranks", "min is 5, which is more than max, 4", "at most max"),
    ({"ranks": {"least": 1, "max": 4}}, "ranks.least", "there is no field `least` here", "allowed: min, max"),
    ({"sweep": {"lr": [1]}}, "sweep", "there is no field `sweep` here", "`extensions: {sweep: ...}`"),
    ({"priority_class": "best_effort"}, "priority_class", "is not a choice here", "did you mean `best-effort`?"),
    ({"priority": 101}, "priority", "101 is out of range", "at most 100"),
    ({"ranks": 2, "network": False}, "network", "the ranks of a gang meet over the network", "ask for one rank"),
    ({"ranks_per_node": 0}, "ranks_per_node", "0 is out of range", "at least 1"),
    ({"ranks": 3, "ranks_per_node": 2}, "ranks_per_node", "3 ranks cannot be 2 on each node", "a multiple of it"),
    ({"ranks": {"min": 2, "max": 4}, "ranks_per_node": 2}, "ranks_per_node", "may change", "as one number"),
    ({"placement": "dense"}, "placement", "'dense' is not a choice here", "allowed: pack or spread"),
    ({"restart": {"on": "ever"}}, "restart.on", "'ever' is not a choice here", "allowed: failure, never or always"),
    ({"restart": {"limits": {"user": -1}}}, "restart.limits.user", "-1 is out of range", "at least 0"),
    ({"restart": {"limits": {"me": 1}}}, "restart.limits.me", "no field `me`", "user, platform, infrastructure"),
    ({"restart": {"backoff": "-1s"}}, "restart.backoff", "'-1s' is not a duration", "30s, 5m or 1h30m"),
    ({"max_runtime": "5 minutes"}, "max_runtime", "'5 minutes' is not a duration", "30s, 5m or 1h30m"),
    ({"max_runtime": 0}, "max_runtime", "0 is out of range", "more than 0"),
    ({"max_runtime": True}, "max_runtime", "true is not a duration", "30s"),
    ({"expected_runtime": "4000d"}, "expected_runtime", "'4000d' is out of range", "at most 3650d"),
    ({"grace": "11m"}, "grace", "660 seconds is too long a grace", "at most 10m"),
    ({"deadline": "2030-01-01T00:00:00"}, "deadline", "names no time zone", "write 2030-01-01T00:00:00Z"),
    ({"deadline": "tomorrow"}, "deadline", "is neither a time nor a duration", "2030-01-31T18:00:00Z"),
    ({"deadline": "0001-01-01T00:00:00+05:00"}, "deadline", "is out of range", "2030-01-31T18:00:00Z"),
    ({"inputs": {"from": "a"}}, "inputs", "must be a list", "{from: ..., to: ...}"),
    ({"inputs": [{"from": "/a"}]}, "inputs[0].to", "the field `to` is missing", "where the data goes"),
    ({"inputs": [{"from": "a", "to": "b"}]}, "inputs[0].from", "neither an absolute path nor a URL", "s3://bucket/key"),
    ({"inputs": [{"from": "s3://u:pw@b/k", "to": "b"}]}, "inputs[0].from", "the URL holds a password", "`secrets`"),
    ({"inputs": [{"from": "/a", "to": "/b"}]}, "inputs[0].to", "'/b' is not below the run directory", "relative"),
    ({"outputs": [{"from": "a/../..", "to": "/b"}]}, "outputs[0].from", "leads out of the run directory", "'..'"),
    ({"outputs": [{"from": "", "to": "/b"}]}, "outputs[0].from", "the path is empty", "'.' for the directory"),
    ({"checkpoint": {"dir": "/a"}}, "checkpoint.dir", "no field `dir`", "did you mean `directory`?"),
    ({"metrics": {"regex": {"a b": "(x)"}}}, "metrics.regex.a b", "'a b' is not a metric's name", "val/accuracy"),
    ({"metrics": {"regex": {"a": "("}}}, "metrics.regex.a", "cannot be compiled: missing )", "an RE2 expression"),
    ({"metrics": {"regex": {"a": "(?=x)(y)"}}}, "metrics.regex.a", "invalid perl operator: (?=", "without lookaround"),
    ({"metrics": {"regex": {"a": r"(x)\1"}}}, "metrics.regex.a", "invalid escape sequence", "backreferences"),
    ({"metrics": {"regex": {"a": "x"}}}, "metrics.regex.a", "the pattern has 0 groups", "(?P<value>"),
    ({"metrics": {"regex": {"a": "(x)(y)"}}}, "metrics.regex.a", "the pattern has 2 groups", "(?P<value>"),
    ({"metrics": {"jsonl": "../m"}}, "metrics.jsonl", "leads out of the run directory", "'..'"),
    ({"labels": {"a": 1}}, "labels.a", "1 is read as a number, not as text", 'quote it: "1"'),
    ({"description": "x" * 5000}, "description", "the value is too long", "at most 4096"),
    ({"gpus": 2}, "gpus", "no field `gpus`", "did you mean `resources.accelerators`?"),
    ({"cpus": 2}, "cpus", "no field `cpus`", "did you mean `resources.cpus`?"),
    ({"timeout": "1h"}, "timeout", "no field `timeout`", "did you mean `max_runtime`?"),
    ({"rank": 2}, "rank", "no field `rank`", "did you mean `ranks`?"),
    ({"Priority-Class": "x"}, "Priority-Class", "no field `Priority-Class`", "did you mean `priority_class`?"),
    ({"zzz": 2}, "zzz", "no field `zzz`", "allowed: kind, name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field", "what", "hint"), BAD_FIELDS, ids=[f"{x[1]}-{x[2][:20]}" for x in BAD_FIELDS]
)
def test_a_bad_field(fields: dict[str, Any], field: str, what: str, hint: str) -> None:
    body = {"name": "a", "command": ["x"], **fields}
    body = {key: value for key, value in body.items() if not (key == "command" and value is None)}
    found = problems(json.dumps(body, indent=1))
    (place,) = [key for key in found if key.split(": ", 1)[1] == field]
    assert what in found[place].what
    assert hint in (found[place].hint or "")
    assert len(found) == 1
    lines = json.dumps(body, indent=1).splitlines()
    key = field.split("[")[0].split(".")[0]
    starts = [number for number, text in enumerate(lines, 1) if text.startswith(f' "{key}"')] or [1]
    assert int(place.split(":")[0]) >= starts[0]


def test_values_of_variables_are_not_repeated() -> None:
    error = refuse(json.dumps({"name": "a", "command": ["x"], "env": {"TOKEN": "s3cret\x00"}}))
    assert "s3cret" not in str(error)
    assert "NUL" in error.what


NOT_MANIFESTS = [
    ("", "job.yaml", "the manifest is empty"),
    ("# nothing\n", "job.yaml", "the manifest is empty"),
    ("- a\n- b\n", "job.yaml:1", "the manifest is not a mapping"),
    ("just words", "job.yaml:1", "the manifest is not a mapping"),
    ("name: a\n---\nname: b\n", "job.yaml:2", "there is more than one document"),
    ("name: a\nname: b\n", "job.yaml:2: name", "the field is given twice, first on line 1"),
    (
        '{"name": "a",\n "env": {"A": "1",\n "A": "2"}}',
        "job.yaml:3: env.A",
        "the field is given twice, first on line 2",
    ),
    ("a: &x [1]\nb: *x\n", "job.yaml:2: b", "an alias (*) is used"),
    ("name: !!python/object:os.system ls\n", "job.yaml:1: name", "the tag tag:yaml.org,2002:python/object:os.system"),
    ("name: !mine a\n", "job.yaml:1: name", "the tag !mine is used"),
    ("? [a]\n: b\n", "job.yaml:1: manifest", "a field's name is not a word"),
    ("name: a\n\tcommand: b\n", "job.yaml:2", "the text is not YAML"),
    ("name: 'a\n", "job.yaml:2", "the text is not YAML"),
    ("name: a\x07\n", "job.yaml", "the text is not YAML"),
    ('{"name": "a", "command": ["x"], "ranks": NaN}', "job.yaml:1: ranks", "must be a whole number, and 'NaN' is not"),
    (b"name: \xff\n", "job.yaml", "the text is not UTF-8 at byte 6"),
    ("ranks: 1" + "0" * 5000, "job.yaml:1: ranks", "the number cannot be read"),
    ("#" * (MAX_BYTES + 1), "job.yaml", "the manifest is larger than 256 KiB"),
]


@pytest.mark.parametrize(("text", "where", "what"), NOT_MANIFESTS, ids=[item[2][:32] for item in NOT_MANIFESTS])
def test_a_text_that_is_no_manifest(text: str | bytes, where: str, what: str) -> None:
    error = refuse(text)
    assert error.where == where
    assert what in error.what


@pytest.mark.parametrize(
    "text",
    ["name: x\ncommand: [" + "a," * 120_000 + "]\n", "env: {" + "".join(f"a{n}: 1," for n in range(12_000)) + "}"],
)
def test_a_text_of_very_many_values_is_left_unread(text: str) -> None:
    error = refuse(text)
    assert "more than 20000 values" in error.what
    assert (error.where or "").startswith("job.yaml:")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{" * 100_000, "- " * 100_000, "a: " + "[" * 100_000, '{"a":' * 100_000]
)
def test_a_bottomless_text_is_refused(text: str) -> None:
    refuse(text)


def test_a_thousand_problems_are_cut_short() -> None:
    text = "name: a\ncommand: x\n" + "".join(f"unknown{number}: 1\n" for number in range(1000))
    error = refuse(text)
    assert len(error.problems) == 51
    assert any("there are 950 more problems" in problem.what for problem in error.problems)


def test_every_mapping_of_the_schema_is_known_to_the_messages() -> None:
    for path, model in JOB.parts.items():
        assert len(JOB.field_names(path)) == len(model.model_fields)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def refused(text: str) -> Invalid | None:
    try:
        parse_manifest(text)
    except Invalid as error:
        return error
    return None


@given(field=st.sampled_from(JOB.field_names(())), value=_json)
def test_any_value_in_any_field_is_taken_or_refused_with_its_place(field: str, value: Any) -> None:
    error = refused(json.dumps({"name": "a", "command": ["x"], field: value}))
    if error is not None:
        assert error.problems
        assert all(str(problem.where).startswith("manifest") and problem.what for problem in error.problems)


@given(text=st.text(max_size=60))
def test_any_text_is_refused_with_a_problem(text: str) -> None:
    error = refused(text)
    assert error is not None
    assert error.problems


def test_characters_that_json_escapes_in_pairs_do_not_hide_the_problem() -> None:
    text = '{"name": "a",\n "command": ["\\ud83d\\udc1f", "\\\\ud83d"],\n "ranks": 0}'
    assert str(refuse(text)) == "job.yaml:3: ranks: 0 is out of range (at least 1)"


SHARED = """\
name: x
command: [python, x.py]
resources:
  accelerators: {asked}
priority_class: {cls}
"""


@pytest.mark.parametrize(
    ("asked", "cls", "where", "what"),
    [
        ("{share: guaranteed}", "guaranteed", "4: resources.accelerators.memory", "a share needs memory of its own"),
        ("{memory: 1GiB}", "guaranteed", "4: resources.accelerators.memory",
         "an exclusive accelerator comes with all of its memory"),
        ("{share: best-effort, memory: 1GiB, count: 0}", "best-effort", "4: resources.accelerators.share",
         "there is no accelerator to share"),
        ("{share: best-effort, memory: 1GiB, count: 2}", "best-effort", "4: resources.accelerators.count",
         "a rank shares one accelerator"),
        ("{share: best-effort, memory: 1GiB}", "guaranteed", "4: resources.accelerators.share",
         "a best-effort share is for best-effort work"),
        ("{share: guaranteed, memory: 1GiB}", "best-effort", "4: resources.accelerators.share",
         "a guaranteed share is for guaranteed work"),
        ("{share: some, memory: 1GiB}", "guaranteed", "4: resources.accelerators.share", None),
    ],
)  # fmt: skip
def test_a_share_that_cannot_be_is_refused(asked: str, cls: str, where: str, what: str | None) -> None:
    found = problems(SHARED.format(asked=asked, cls=cls))
    assert list(found) == [where]
    assert what is None or found[where].what == what


@pytest.mark.parametrize(("ranks", "said"), [("4", "4 ranks"), ("{min: 1, max: 2}", "several ranks")])
def test_a_best_effort_gang_on_shared_accelerators_is_refused(ranks: str, said: str) -> None:
    asked = "{share: best-effort, memory: 1GiB}"
    found = problems(SHARED.format(asked=asked, cls="best-effort") + f"ranks: {ranks}\n")
    assert found["4: resources.accelerators.share"].what.startswith(f"{said} that wait for each other")
    guaranteed = SHARED.format(asked=asked.replace("best-effort", "guaranteed"), cls="guaranteed")
    parse_manifest(guaranteed + f"ranks: {ranks}\n")


def test_a_share_is_part_of_what_a_rank_asks_for() -> None:
    manifest = parse_manifest(SHARED.format(asked="{type: a100, share: guaranteed, memory: 20GiB}", cls="guaranteed"))
    asked = manifest.resources.resources()
    assert (asked.share, asked.device_memory_bytes, dict(asked.accelerators)) == ("guaranteed", 20 << 30, {"a100": 1})
    assert parse_manifest(manifest.canonical_json()) == manifest
    without = parse_manifest("{name: x, command: [x], resources: {accelerators: {share: best-effort, memory: 1GiB}}}")
    assert without.resources.resources().share == "best-effort"
