"""Optimize, certify, save, load: as a user of the library does."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from shoal.cascade import Cascade, Join, optimize
from shoal.cascade.artefact import read
from shoal.cascade.roles import divide
from shoal.cascade.table import Table
from shoal.cascade.willump import knapsack
from shoal.core import Invalid
from tests.cascade.conftest import text_pipeline, texts


def test_most_rows_take_the_cheap_stage_within_the_tolerance(optimized: Cascade) -> None:
    told = optimized.explain()
    assert optimized.certificate is not None
    assert told["approximated"] > 0.3
    assert told["plan"]["stages"][0] != told["plan"]["stages"][-1]
    rows, y = texts(4000, seed=99)
    given_, stages = optimized.answers(rows)
    full = Cascade(optimized.full, optimized.columns).predict(rows)
    assert (stages == 0).mean() > 0.3
    assert (full == y).mean() - (given_ == y).mean() <= 0.01
    np.testing.assert_array_equal(given_[stages == 1], full[stages == 1])
    for row, (label, stage) in enumerate(zip(given_[:60].tolist(), stages[:60].tolist(), strict=True)):  # rows alone
        alone = optimized.run(optimized.table([rows[row]]))
        assert (optimized.named(alone.scores).tolist(), alone.stages.tolist()) == ([label], [stage])
    assert "at most 1 points less accurate, with 95 % confidence" in told["certificate"]["statement"]
    for group in told["groups"]:
        assert all(one["us"] > 0 <= one["spread_us"] for one in group["cost"].values())
        assert set(group["cost"]) == {"before", "before_single", "batch", "single"}
    json.dumps(told)


def test_the_same_seed_gives_the_same_roles_and_predictions() -> None:
    rows, y = texts(400)
    one, same, other = (optimize(text_pipeline(), rows, y, seed=seed) for seed in (3, 3, 4))
    assert one.explain()["digests"] == same.explain()["digests"] != other.explain()["digests"]
    np.testing.assert_array_equal(one.predict_proba(rows), same.predict_proba(rows))


def test_no_loss_means_compiled_only(tweets: Any) -> None:
    rows, y = tweets
    pipeline = text_pipeline().fit(rows[:2000], y[:2000])
    cascade = optimize(pipeline, rows[2000:], y[2000:])
    assert cascade.certificate is None
    assert "no loss" in cascade.explain()["reason"]
    np.testing.assert_array_equal(cascade.predict(rows), pipeline.predict(rows))
    assert set(cascade.answers(rows)[1]) == {0}


def test_too_few_rows_are_said_with_the_number_that_is_needed() -> None:
    rows, y = texts(1000)
    cascade = optimize(text_pipeline(), rows, y, max_loss=0.001)
    assert cascade.certificate is None
    assert "2,995 rows without a disagreement" in cascade.explain()["reason"]
    assert cascade.explain()["approximated"] == 0


def test_without_labels_disagreement_alone_certifies() -> None:
    rows, y = texts(4000)
    pipeline = text_pipeline().fit(rows[:1500], y[:1500])
    for _ in range(4):  # which stages pay is measured, and differs on a busy machine
        cascade = optimize(pipeline, rows[1500:], max_loss=0.02)
        assert cascade.certificate is not None
        assert cascade.certificate.test == "disagreement"
        if needing := len(cascade.rows_to_label(texts(500, seed=5)[0])):
            break
    assert 0 < needing < 500


def test_willumps_own_rule_has_no_certificate() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 1000)
    told_early = draw.random(1000) < 0.7
    words = np.array(["no", "yes"])[y]
    rows = pd.DataFrame({"a": np.where(told_early, words, "it"), "b": np.where(told_early, "it", words + " " + words)})
    rows["a"] += [f" {number}" for number in range(1000)]
    columns = ColumnTransformer([(name, CountVectorizer(max_features=3), name) for name in ("a", "b")])
    cascade = optimize(make_pipeline(columns, LogisticRegression()), rows, y, method="willump")
    told = cascade.explain()
    assert told["certificate"] is None
    assert told["plan"]["method"] == "willump"
    assert told["approximated"] > 0.5
    assert "nothing is certified" in told["reason"]
    with pytest.raises(Invalid, match="two classes"):
        optimize(text_pipeline(), texts(100)[0], np.arange(100) % 3, method="willump")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=7), st.floats(0.05, 1))
def test_the_knapsack_is_filled_as_well_as_any_choice_fills_it(items: list[tuple[float, float]], room: float) -> None:
    values_, sizes = [value for value, _ in items], [size for _, size in items]
    chosen = knapsack(values_, sizes, room)
    assert sum(int(sizes[one] * 1000) for one in chosen) <= int(room * 1000)
    every = itertools.chain.from_iterable(itertools.combinations(range(len(items)), size) for size in range(8))
    fitting = [one for one in every if sum(int(sizes[place] * 1000) for place in one) <= int(room * 1000)]
    best = max(sum(values_[place] for place in one) for one in fitting)
    assert sum(values_[one] for one in chosen) == pytest.approx(best)


def test_rows_are_certified_once(optimized: Cascade, tmp_path: Path) -> None:
    optimized.save(tmp_path / "one.cascade")
    cascade = Cascade.load(tmp_path / "one.cascade")
    with pytest.raises(Invalid, match="part in making"):
        cascade.certify(texts(3000)[0])
    new, labels = texts(2000, seed=7)
    assert cascade.certify(new, labels) is not None
    with pytest.raises(Invalid, match="certified before"):
        cascade.certify(new)
    cascade.save(tmp_path / "two.cascade")
    loaded = Cascade.load(tmp_path / "two.cascade")
    with pytest.raises(Invalid, match="certified before"):
        loaded.certify(new[:5] + texts(50, seed=8)[0])
    again = loaded.certify(new, again=True)
    assert again is not None
    assert "USED BEFORE" in again.statement
    fresh = texts(1500, seed=11)[0]
    once = loaded.certify([*fresh, *new], leave_out_used=True)
    assert once is not None
    assert once.rows == len(set(fresh)) or once.rows == len(fresh)


def test_a_certificate_that_is_not_renewed_is_gone(optimized: Cascade, tmp_path: Path) -> None:
    optimized.save(tmp_path / "one.cascade")
    cascade = Cascade.load(tmp_path / "one.cascade")
    assert cascade.certify(texts(100, seed=12)[0]) is None
    assert "needed" in cascade.explain()["reason"]
    assert set(cascade.answers(texts(200, seed=13)[0])[1]) == {0}  # one stage alone: the full pipeline


def test_labels_that_are_missing_count_as_the_worst(optimized: Cascade, tmp_path: Path) -> None:
    optimized.save(tmp_path / "one.cascade")
    rows, y = texts(2000, seed=21)
    needing = set(optimized.rows_to_label(rows).tolist())
    some = [int(label) if row in needing else None for row, label in enumerate(y)]
    with_some, with_all = Cascade.load(tmp_path / "one.cascade"), Cascade.load(tmp_path / "one.cascade")
    assert with_some.certify(rows, some) == with_all.certify(rows, y)


def test_equal_rows_and_groups_have_one_role() -> None:
    rows, _ = texts(300)
    table = Table.of([*rows, *rows])
    roles = divide(table, 0)
    role = {row: name for name in ("fit", "select", "certify") for row in getattr(roles, name).tolist()}
    assert all(role[row] == role[row + 300] for row in range(300))
    groups = [row // 10 for row in range(300)]
    roles = divide(Table.of([f"{row}" for row in range(300)]), 0, groups)
    assert not {groups[row] for row in roles.fit} & {groups[row] for row in roles.certify}
    with pytest.raises(Invalid, match="no rows are left"):
        divide(Table.of(rows), 0, ["one"] * 300)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_loss": -1}, "not negative"), ({"confidence": 1.0}, "between 0.5 and 1"),
        ({"method": "magic"}, "no method"),
        ({"objective": "money"}, "no objective"), ({"seed": -1}, "a seed is not negative"),
        ({"clip": 0.0}, "above zero"), ({"clip": float("nan")}, "above zero"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], said: str, tweets: Any) -> None:
    with pytest.raises(Invalid, match=said):
        optimize(text_pipeline(), *tweets, **change)


def test_bad_data_are_refused() -> None:
    rows, y = texts(100)
    with pytest.raises(Invalid, match="too few"):
        optimize(text_pipeline(), rows[:10], y[:10])
    with pytest.raises(Invalid, match="100 rows, but 99 labels"):
        optimize(text_pipeline(), rows, y[:99])
    with pytest.raises(Invalid, match="100 rows, but 2 weights"):
        optimize(text_pipeline(), rows, y, sample_weight=[1.0, 2.0])
    for missing in (None, float("nan")):
        with pytest.raises(Invalid, match="1 rows have no label"):
            optimize(text_pipeline(), rows, [missing, *y[1:].tolist()])
    with pytest.raises(Invalid, match="needs labels"):
        optimize(text_pipeline(), rows)
    with pytest.raises(Invalid, match="no pipeline"):
        optimize(len, rows, y)


def test_labels_of_one_class_are_refused_and_weights_are_those_of_the_fit_rows() -> None:
    rows, y = texts(300)
    with pytest.raises(Invalid, match="cannot be fitted"):
        optimize(text_pipeline(), rows, np.zeros(300))
    weights = np.where(y == 1, 5.0, 0.5)
    cascade = optimize(text_pipeline(), rows, y, sample_weight=weights)
    fit = divide(Table.of(rows), 0).fit
    wanted = text_pipeline().fit([rows[row] for row in fit], y[fit], logisticregression__sample_weight=weights[fit])
    np.testing.assert_allclose(cascade.predict_proba(rows[:50]), wanted.predict_proba(rows[:50]), rtol=1e-9)


def test_a_feature_made_of_the_labels_that_it_is_trained_on_is_reported_with_its_error() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 3000)
    rows = pd.DataFrame({"user": draw.integers(0, 1500, 3000), "sign": np.where(draw.random(3000) < 0.75, y, 1 - y)})
    fit = divide(Table.of(rows), 0).fit
    rest = np.setdiff1d(np.arange(3000), fit)

    def remarks_with(aggregated: Any, rows: pd.DataFrame, y: Any, means_of: pd.DataFrame) -> list[str]:
        """The mean label of each user over the aggregated rows is a feature."""
        means = means_of.iloc[aggregated].groupby("user").label.mean().reset_index()
        user = ("user", Join(means, ["user"], ["label"], missing=0.5), ["user"])
        columns = ColumnTransformer([user, ("sign", "passthrough", ["sign"])])
        made = optimize(make_pipeline(columns, LogisticRegression()), rows, y, max_loss=0.01)
        assert all(0 <= group["importance"]["error"] < 0.05 for group in made.explain()["groups"])
        return [one for one in made.explain()["remarks"] if "better without" in one]

    known = rows.assign(label=y)
    (leaking,) = remarks_with(fit, rows, y, known)
    assert "points better without user: if it is made of labels" in leaking
    assert "±" in leaking
    # Of rows that have no role it does no harm.
    assert remarks_with(fit, rows.iloc[rest].reset_index(drop=True), y[rest], known) == []


@pytest.mark.slow
def test_a_regression_is_bounded_in_its_error() -> None:
    rows, y = values(4000, 0)
    pipeline = make_pipeline(text_pipeline()[0], Ridge(alpha=1.0))
    cascade = optimize(pipeline, rows, y, max_loss=0.2, clip=2.0)
    assert cascade.certificate is not None, cascade.explain()
    assert cascade.certificate.measure == "absolute error"
    new, truth = values(3000, 44)
    given_, stages = cascade.answers(new)
    full = Cascade(cascade.full, cascade.columns).predict(new)
    assert (stages == 0).any()
    np.testing.assert_array_equal(given_[stages == 1], full[stages == 1])
    grown = np.clip(np.abs(given_ - truth) - np.abs(full - truth), -2, 2)
    assert grown.mean() <= 0.2 + 3 * grown.std() / len(new) ** 0.5


def values(rows: int, seed: int) -> tuple[list[str], Any]:
    """A number that words tell, and in part characters alone."""
    made, labels = texts(rows, seed)
    noise = np.random.default_rng(seed + 1).normal(size=rows)
    return made, np.array([3.0 * text.count("win") - 2.0 * text.count("sad") for text in made]) + labels + 0.3 * noise


# ---- the artefact ----


def test_an_artefact_predicts_the_same_without_scikit_learn(optimized: Cascade, tmp_path: Path) -> None:
    optimized.save(tmp_path / "one.cascade")
    rows = texts(300, seed=31)[0]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    script = (
        "import sys, json; sys.modules['sklearn'] = None; sys.modules['pandas'] = None\n"
        "from shoal.cascade import Cascade\n"
        "c = Cascade.load('one.cascade'); rows = json.load(open('rows.json'))\n"
        "p, s = c.answers(rows); print(json.dumps([p.tolist(), s.tolist(), c.predict_proba(rows).tolist()]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    labels, stages = optimized.answers(rows)
    assert json.loads(ran.stdout) == [labels.tolist(), stages.tolist(), optimized.predict_proba(rows).tolist()]


def test_a_step_without_a_name_cannot_be_written(tmp_path: Path) -> None:
    rows, y = texts(200)
    own = CountVectorizer(tokenizer=str.split, token_pattern=None)
    cascade = optimize(make_pipeline(own, LogisticRegression()), rows, y)
    with pytest.raises(Invalid, match="countvectorizer"):
        cascade.save(tmp_path / "one.cascade")
    assert not list(tmp_path.iterdir())


def repacked(data: bytes, change: Any) -> bytes:
    """The zip with its entries changed: `change` maps name and content to entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            for name, content, how in change(entry.filename, old.read(entry)):
                new.writestr(name, content, how)
    return out.getvalue()


@pytest.fixture(scope="module")
def artefact(optimized: Cascade, tmp_path_factory: Any) -> bytes:
    path = tmp_path_factory.mktemp("a") / "one.cascade"
    optimized.save(path)
    data: bytes = path.read_bytes()
    return data


def with_document(data: bytes, edit: Any) -> bytes:
    def change(name: str, content: bytes) -> list[Any]:
        if name == "cascade.json":
            document = json.loads(content)
            edit(document)
            content = json.dumps(document).encode()
        return [(name, content, zipfile.ZIP_STORED)]

    return repacked(data, change)


def test_hostile_files_are_refused_in_words(artefact: bytes) -> None:
    stored, deflated = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
    objects = io.BytesIO()
    np.save(objects, np.array([{}], object), allow_pickle=True)
    cases = {
        "no zip file": b"not a zip",
        "compressed": repacked(artefact, lambda name, content: [(name, content, deflated)]),
        "no artefact has": repacked(artefact, lambda name, content: [(f"../{name}", content, stored)]),
        "two of one name": repacked(artefact, lambda name, content: [(name, content, stored)] * 2),
        "has no cascade.json": repacked(
            artefact, lambda name, content: [] if name == "cascade.json" else [(name, content, stored)]
        ),
        "not those that it names": repacked(
            artefact, lambda name, content: [] if name == "arrays/0.npy" else [(name, content, stored)]
        ),
        "not what was written": repacked(
            artefact,
            lambda name, content: [(name, content if name != "arrays/0.npy" else objects.getvalue(), stored)],
        ),
        "schema 99": with_document(artefact, lambda document: document.update(schema=99)),
        "not known": with_document(artefact, lambda document: document["groups"][0]["steps"][0].update(kind="pickle")),
        "damaged": with_document(artefact, lambda document: document.pop("groups")),
        "another width": with_document(artefact, lambda document: document["groups"][0].update(width=3)),
    }
    for said, data in cases.items():
        with pytest.raises(Invalid, match=said):
            read(data, "file", Cascade)


def test_an_array_of_objects_is_never_unpickled(artefact: bytes) -> None:
    import hashlib

    objects = io.BytesIO()
    np.save(objects, np.array([print], object), allow_pickle=True)
    digest = hashlib.sha256(objects.getvalue()).hexdigest()
    changed = repacked(
        artefact,
        lambda name, content: [(name, content if name != "arrays/0.npy" else objects.getvalue(), zipfile.ZIP_STORED)],
    )
    with pytest.raises(Invalid, match="not numbers"):
        read(
            with_document(changed, lambda document: document["sha256"].update({"arrays/0.npy": digest})),
            "file",
            Cascade,
        )


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_damaged_file_is_refused_or_is_what_it_was(artefact: bytes, data: Any) -> None:
    damaged = bytearray(artefact)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    with contextlib.suppress(Invalid):
        read(bytes(damaged), "file", Cascade)
