"""The runtime of served cascades and its watch for drift, with a clock that the test turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cascade import Cascade
from shoal.cascade.runtime import CascadeRuntime
from shoal.inference import BadModel, BadRequest, ModelSpec, open_runtime, runtime_of
from tests.cascade.conftest import texts
from tests.cascade.test_cascade import with_document


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(path: Path, clock: Any = None, **options: Any) -> CascadeRuntime:
    spec = ModelSpec("tweets", str(path), "cascade", options=options)
    return CascadeRuntime(spec, clock or Clock())


@pytest.fixture
def artefact(optimized: Cascade, tmp_path: Path) -> Path:
    optimized.save(tmp_path / "one.cascade")
    return tmp_path / "one.cascade"


def asked(rows: list[str]) -> dict[str, Any]:
    array = np.empty(len(rows), object)
    array[:] = [row.encode() for row in rows]
    return {"text": array}


def test_it_is_found_by_its_suffix_and_answers_as_the_library(artefact: Path, optimized: Cascade) -> None:
    assert runtime_of("models/tweets.cascade") == "cascade"
    runtime = open_runtime(ModelSpec("tweets", str(artefact), "cascade", max_batch=8))
    rows = texts(200, seed=50)[0]
    labels, stages = optimized.answers(rows)
    found = runtime.run(asked(rows), [])
    np.testing.assert_array_equal(found["predict"], labels)
    np.testing.assert_array_equal(found["stage"], stages)
    np.testing.assert_array_equal(found["predict_proba"], optimized.predict_proba(rows))
    assert list(runtime.run(asked(rows[:1]), ["stage"])) == ["stage"]
    runtime.close()


def test_a_shift_of_the_data_is_found_and_every_later_row_takes_the_full_path(artefact: Path) -> None:
    runtime = opened(artefact, watch=1.0)
    assert runtime.state().word == "CERTIFIED"
    full = Cascade.load(artefact).full
    for seed in range(60, 64):  # what it was certified for
        runtime.run(asked(texts(100, seed=seed)[0]), [])
        while runtime.idle(1.0):
            pass
    assert runtime.state().word == "CERTIFIED"
    before = runtime.figures()
    assert before["sampled_total"] == 400
    assert before["approximated_total"] > 0
    shifted = texts(600, seed=65, right=0.0)[0]  # the word that told the label tells the other one
    for start in range(0, 600, 50):
        runtime.run(asked(shifted[start : start + 50]), [])
        while runtime.idle(1.0):
            pass
    state = runtime.state()
    assert state.word == "DRIFTED", runtime.figures()
    assert "full path" in state.reason
    found = runtime.run(asked(shifted[:100]), ["predict", "stage"])
    assert set(found["stage"].tolist()) == {len(Cascade.load(artefact).stages)}
    scores = full.run(Cascade.load(artefact).table(shifted[:100])).scores
    np.testing.assert_array_equal(found["predict"], full.output.named(full.output.labels(scores)))
    approximated = runtime.figures()["approximated_total"]
    runtime.run(asked(shifted), [])
    assert runtime.figures()["approximated_total"] == approximated
    after = opened(artefact)  # another process
    after.restore(runtime.keep())
    assert after.state().word == "DRIFTED"


def test_nothing_is_compared_before_the_answer(artefact: Path) -> None:
    runtime = opened(artefact, watch=1.0)
    rows = texts(100, seed=70)[0]
    stages = runtime.run(asked(rows), [])["stage"]
    assert runtime.figures()["sampled_total"] == (stages == stages.max()).sum()  # those that took the full path anyway
    while runtime.idle(0.0):  # a row at a time
        pass
    assert runtime.figures()["sampled_total"] == 100
    assert opened(artefact, watch=0.0).run(asked(rows), [])["stage"].tolist() == stages.tolist()


def test_a_replica_without_idle_time_says_that_it_is_blind(artefact: Path) -> None:
    clock = Clock()
    runtime = opened(artefact, clock, watch=1.0)
    rows = texts(600, seed=71)[0]
    clock.now += 10
    runtime.run(asked(rows), [])
    assert runtime.state().word == "CERTIFIED"
    clock.now += 2 * 3600
    assert runtime.state().word == "WATCHING"
    assert "2.0 h" in runtime.state().reason
    assert runtime.figures()["dropped_total"] > 0
    while runtime.idle(1.0):
        pass
    assert runtime.state().word == "CERTIFIED"


def test_without_a_certificate_every_row_takes_the_full_path(artefact: Path) -> None:
    cascade = Cascade.load(artefact)
    assert cascade.certify(texts(50, seed=72)[0]) is None
    cascade.save(artefact)
    runtime = opened(artefact)
    assert runtime.state().word == "UNCERTIFIED"
    full = len(cascade.stages)
    assert set(runtime.run(asked(texts(200, seed=73)[0]), ["stage"])["stage"].tolist()) == {full}
    assert runtime.figures()["approximated_total"] == 0
    kept = runtime.keep()
    runtime.restore(kept)
    with pytest.raises(ValueError, match="another certificate"):
        runtime.restore(b'{"certificate": "x", "test": null}')


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda document: document["certified"].update(version=2), "of version 2"),
        (lambda document: document.update(kinds=["number"]), "for other columns"),
        (lambda document: document["rules"][-1][0].update(thresholds=[0.0, 0.0]), "for other columns or stages"),
        (lambda document: document["groups"][0].update(name="other"), "for other columns or stages"),
    ],
)
def test_a_certificate_of_another_version_or_for_other_columns_is_none(artefact: Path, edit: Any, said: str) -> None:
    artefact.write_bytes(with_document(artefact.read_bytes(), edit))
    runtime = opened(artefact)
    assert runtime.state().word == "UNCERTIFIED"
    assert said in runtime.state().reason
    if "columns" not in said:
        rows = asked(texts(50, seed=73)[0])
        assert set(runtime.run(rows, ["stage"])["stage"].tolist()) == {len(Cascade.load(artefact).stages)}


def test_only_new_rows_clear_a_drift(artefact: Path) -> None:
    shifted, rows = texts(600, seed=65, right=0.0)[0], texts(2000, seed=67)
    drifted = opened(artefact, watch=1.0)
    drift(drifted, shifted)
    cascade = Cascade.load(artefact)
    cascade.save(artefact)  # the same, deployed again
    same = opened(artefact, watch=1.0)
    same.restore(drifted.keep())
    assert same.state() == drifted.state()

    assert cascade.certify(*rows) is not None
    cascade.save(artefact)
    anew = opened(artefact, watch=1.0)
    with pytest.raises(ValueError, match="another certificate"):
        anew.restore(drifted.keep())
    assert (anew.state().word, anew.state().lasting) == ("CERTIFIED", False)

    drift(anew, shifted)
    assert cascade.certify(*rows, again=True) is not None  # what had certified before refutes nothing
    cascade.save(artefact)
    again = opened(artefact)
    again.restore(anew.keep())
    assert again.state().word == "DRIFTED"


def drift(runtime: CascadeRuntime, shifted: list[str]) -> None:
    runtime.run(asked(shifted), [])
    while runtime.idle(1.0):
        pass
    assert (runtime.state().word, runtime.state().lasting) == ("DRIFTED", True)


@pytest.mark.parametrize("kept", [b"", b"{}", b"[]", b'{"certificate": ""}', b"\xff"])
def test_what_another_version_kept_is_refused(artefact: Path, kept: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each says its own
        opened(artefact).restore(kept)


def test_bad_files_options_and_requests(artefact: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.cascade").write_bytes(artefact.read_bytes()[:1000])
    with pytest.raises(BadModel, match=r"bad\.cascade"):
        opened(tmp_path / "bad.cascade")
    with pytest.raises(ValueError, match="watch"):
        opened(artefact, watch=2)
    broken = np.empty(1, object)
    broken[:] = [b"\xff"]
    with pytest.raises(BadRequest, match="UTF-8"):
        opened(artefact).run({"text": broken}, [])
