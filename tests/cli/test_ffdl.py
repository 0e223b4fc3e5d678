"""FfDL's manifests come over, and what cannot is said."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from shoal.cli.importers.ffdl import import_ffdl
from shoal.contract.manifest import Input, Output, Placement, parse_manifest
from shoal.core import Invalid, Resources

MANIFEST = r"""
name: Digits CNN_v2
description: A network for digits
version: "1.10"
gpus: 2
cpus: 0.5
memory: 1Gb
learners: 2

data_stores:
  - id: object-store
    type: mount_cos
    training_data:
      container: digits_training
    training_results:
      container: digits_results
    connection:
      auth_url: http://storage.example:9000
      user_name: AKIA-visible
      password: hunter2

framework:
  name: tensorflow
  version: 1.50
  command: >
    python3 network.py --images ${DATA_DIR}/images.gz
      --iterations 2000

evaluation_metrics:
  type: regex_extractor
  groups:
    test:
      regex: 'Iteration (?P<it>\d+): loss (?P<loss>[\d.]+), accuracy (?P<acc>[\d.]+)'
      etimes:
        iteration: {type: INT, value: $it}
      scalars:
        loss: {type: FLOAT, value: $loss}
        accuracy: {type: FLOAT, value: $acc}
    other:
      regex: 'speed %{FLOAT:speed}'
      scalars:
        speed: {type: FLOAT, value: $speed}
"""


def test_what_has_a_counterpart_comes_over() -> None:
    job, _ = import_ffdl(MANIFEST)
    assert (job.name, job.description, job.ranks) == ("digits-cnn-v2", "A network for digits", 2)
    assert job.resources_per_rank() == Resources({"any": 2}, cpu_milli=500, memory_bytes=10**9)
    assert job.labels == {"imported-from": "ffdl", "framework": "tensorflow 1.50", "version": "1.10"}
    assert job.inputs == (Input.model_validate({"from": "s3://digits_training", "to": "data"}),)
    assert job.outputs == (Output.model_validate({"from": "results", "to": "s3://digits_results/digits-cnn-v2"}),)
    assert job.env == {"AWS_ENDPOINT_URL": "http://storage.example:9000"}
    assert parse_manifest(job.canonical_json()) == job


def test_credentials_become_references_and_are_shown_nowhere() -> None:
    job, notes = import_ffdl(MANIFEST)
    assert job.secrets == {
        "AWS_ACCESS_KEY_ID": "object-store-access-key",
        "AWS_SECRET_ACCESS_KEY": "object-store-secret-key",
    }
    everything = job.canonical_json() + "".join(notes)
    assert "hunter2" not in everything
    assert "AKIA-visible" not in everything
    (note,) = [note for note in notes if note.startswith("CREDENTIALS")]
    assert "data_stores[0].connection" in note
    assert "object-store-secret-key" in note


def test_patterns_are_renamed_to_value_and_step() -> None:
    job, notes = import_ffdl(MANIFEST)
    assert set(job.metrics.regex) == {"test/loss", "test/accuracy"}
    match = re.search(job.metrics.regex["test/accuracy"], "Iteration 40: loss 0.25, accuracy 0.93")
    assert match is not None
    assert (match["value"], match["step"]) == ("0.93", "40")
    assert any("'other'" in note for note in notes)


def test_the_notes_name_what_changed() -> None:
    _, notes = import_ffdl(MANIFEST + "\nweights: 3\n")
    text = "\n".join(notes)
    for part in ("'digits-cnn-v2'", "tensorflow 1.50", "bash -c", "`weights`", "under `files`"):
        assert part in text


def test_the_command_finds_ffdls_variables(tmp_path: Path) -> None:
    text = MANIFEST.replace("python3 network.py --images", "printenv").replace("${DATA_DIR}/images.gz", "LEARNER_ID")
    text = text.replace("      --iterations 2000", "    NUM_LEARNERS GPU_COUNT CHECKPOINT_DIR DATA_DIR TRAINING_ID")
    job, _ = import_ffdl(text)
    given = {"RANK": "1", "WORLD_SIZE": "2", "SHOAL_CHECKPOINT_DIR": "/kept", "SHOAL_JOB_ID": "j7"}
    done = subprocess.run(
        job.argv(), env={"PATH": os.environ["PATH"], **given}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2", "2", "2", "/kept", f"{tmp_path}/data", "j7"]
    assert {path.name for path in tmp_path.iterdir()} == {"data", "results", "logs", "job"}


def test_redirections_and_several_lines_stay_shell() -> None:
    job, _ = import_ffdl("name: a\nframework:\n  command: |\n    echo one > out\n    echo two >> out\n")
    assert job.argv()[:2] == ("bash", "-c")
    assert job.argv()[2].endswith("; echo one > out\necho two >> out")


def test_a_simple_command_takes_the_shells_place() -> None:
    job, _ = import_ffdl(MANIFEST)
    assert job.argv()[2].endswith("; exec python3 network.py --images ${DATA_DIR}/images.gz --iterations 2000")


@pytest.mark.parametrize(
    ("memory", "expected"),
    [("1Gb", 10**9), ("512MB", 512 * 10**6), ("1000MiB", 1000 << 20), ("2 GiB", 2 << 30), ("64", 64_000_000)],
)  # fmt: skip
def test_sizes_as_ffdl_writes_them(memory: str, expected: int) -> None:
    job, _ = import_ffdl(f"name: a\nframework: {{command: x}}\nmemory: {memory}\n")
    assert job.resources.memory == expected


def test_a_host_mount_is_a_local_path() -> None:
    job, _ = import_ffdl(
        "name: a\nschedpolicy: spread\nframework: {command: x}\ndata_stores:\n- training_data: {container: d}\n"
        "  training_results: {container: r}\n  connection: {type: host_mount, path: /cos/}\n"
    )
    assert [item.source for item in job.inputs] == ["/cos/d"]
    assert [item.target for item in job.outputs] == ["/cos/r/a"]
    assert (job.placement, job.secrets) == (Placement.SPREAD, {})


def test_every_problem_is_told_with_its_line() -> None:
    with pytest.raises(Invalid) as caught:
        import_ffdl(
            "name: '??'\ncpus: two\nlearners: 0\nmemory: lots\ngpus: 1.5\nframework: {name: x}\n", source="f.yml"
        )
    assert [str(problem) for problem in caught.value.problems] == [
        "f.yml:1: name: '??' holds no letter or digit (name the job)",
        "f.yml:2: cpus: 'two' is not a number",
        "f.yml:4: memory: 'lots' is not a size (FfDL writes 1Gb, 512Mb or 1000MiB)",
        "f.yml:5: gpus: 1.5 is not a whole number (accelerators are given whole)",
        "f.yml:6: framework.command: the field `command` is missing (FfDL's manifests have it)",
    ]


def test_limits_of_the_result_point_at_ffdls_field() -> None:
    with pytest.raises(Invalid, match=r"f.yml:2: learners: 0 is out of range \(at least 1\)"):
        import_ffdl("name: a\nlearners: 0\nframework: {command: x}\n", source="f.yml")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: b\n", "2 problems"),
        ("[]", "not a mapping"),
        ("name: a\nframework: [x]\n", "must be a mapping, and a list is not"),
        ("name: a\nframework: {command: x}\ndata_stores: {a: b}\n", "must be a list"),
        ("name: a\nframework: {command: x}\ndata_stores: [1]\n", "must be a mapping, and 1 is not"),
        ("name: a\nframework: {command: [x]}\n", "must be text, and a list is not"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_what_is_no_ffdl_manifest_is_refused(text: str | bytes, what: str) -> None:
    with pytest.raises(Invalid, match=re.escape(what)):
        import_ffdl(text)
