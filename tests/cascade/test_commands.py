"""`shoal cascade` from the command line."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cascade.conftest import texts

TRAIN = """
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline as pipe, make_union

def make_pipeline():
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 4))
    return pipe(make_union(TfidfVectorizer(), characters), LogisticRegression())

def by_name(column="text"):
    from sklearn.compose import ColumnTransformer
    return pipe(ColumnTransformer([("words", TfidfVectorizer(), column)]), LogisticRegression())

def of_a_column_that_is_not_there():
    return by_name("txt")

def fails():
    raise RuntimeError("no data")
"""


def write(path: Path, rows: int, seed: int, *, right: float = 0.997) -> None:
    made, labels = texts(rows, seed, right=right)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["text", "android"])
        out.writerows(zip(made, labels.tolist(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("cascade")
    (folder / "train.py").write_text(TRAIN)
    write(folder / "tweets.csv", 2500, 0)
    write(folder / "new.csv", 1500, 1)
    write(folder / "few.csv", 40, 2)
    ran = run(folder, "optimize", "train:make_pipeline", "--data", "tweets.csv", "--target", "android", "--max-loss",
              "1pt", "--confidence", "95%", "-o", "one.cascade")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "at most 1 points less accurate, with 95 % confidence, by 1,000 rows" in ran.stdout
    assert "wrote one.cascade" in ran.stdout
    assert "certifying" in ran.stderr
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shoal.cli", "cascade", *words], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_what_explain_shows(folder: Path) -> None:
    shown = run(folder, "explain", "one.cascade").stdout
    assert "tfidfvectorizer-1" in shown
    assert "certificate" in shown
    told = json.loads(run(folder, "explain", "one.cascade", "--json").stdout)
    assert told["approximated"] > 0.3
    assert {group["name"] for group in told["groups"]} == {"tfidfvectorizer-1", "tfidfvectorizer-2"}
    assert told["groups"][0]["importance"]["shapley"] > 0


@pytest.mark.slow
def test_rows_certify_once_with_labels_or_without(folder: Path) -> None:
    done = run(folder, "certify", "one.cascade", "--data", "new.csv", "-o", "two.cascade")
    assert "by 1,500 rows (exact bound on disagreement, no labels" in done.stdout, done.stderr
    again = run(folder, "certify", "two.cascade", "--data", "new.csv")
    assert again.returncode == 2
    assert "1,500 of the rows have certified before" in again.stderr
    allowed = run(folder, "certify", "two.cascade", "--data", "new.csv", "--target", "android", "--again")
    assert "USED BEFORE" in allowed.stdout
    seen = run(folder, "certify", "one.cascade", "--data", "tweets.csv")
    assert seen.returncode == 2
    assert "1,500 of the rows had a part in making" in seen.stderr
    few = run(folder, "certify", "two.cascade", "--data", "few.csv")
    assert few.returncode == 2
    assert "not certified" in few.stderr
    assert json.loads(run(folder, "explain", "two.cascade", "--json").stdout)["certificate"] is None


def test_which_rows_need_a_label(folder: Path) -> None:
    run(folder, "certify", "one.cascade", "--data", "new.csv", "--to-label", "rows.csv")
    numbers = (folder / "rows.csv").read_text().split()
    assert numbers[0] == "row"
    assert 0 < len(numbers) - 1 < 1500


@pytest.mark.slow
def test_bench_compares_all_ways(folder: Path) -> None:
    ran = run(folder, "bench", "one.cascade", "--data", "few.csv", "--target", "android", "--against",
              "train:make_pipeline", "--json")  # fmt: skip
    told = json.loads(ran.stdout)
    assert [way["way"] for way in told["ways"]] == ["original", "cascade", "full path, compiled"]
    assert sum(told["answered_by_stage"]) == told["rows"] == 40
    shown = run(folder, "bench", "one.cascade", "--data", "few.csv").stdout
    assert "rows by stage" in shown


@pytest.mark.slow
def test_bench_finds_the_data_that_the_cascade_was_made_of(folder: Path, tmp_path: Path) -> None:
    ran = run(folder, "bench", "one.cascade", "--against", "train:make_pipeline")
    assert "on rows of tweets.csv" in ran.stderr
    assert ["original" in ran.stdout, "of 2,000 predictions differ" in ran.stdout] == [True, True], ran.stderr
    (tmp_path / "one.cascade").write_bytes((folder / "one.cascade").read_bytes())
    gone = run(tmp_path, "bench", "one.cascade")
    assert gone.returncode == 2
    assert "tweets.csv, which the cascade was made of, is not here" in gone.stderr
    write(tmp_path / "tweets.csv", 40, 5)
    assert run(tmp_path, "bench", "one.cascade").returncode == 2  # another file of that name


@pytest.mark.slow
def test_a_pipeline_that_reads_columns_by_name_gets_a_table_of_one(folder: Path) -> None:
    made = run(folder, "optimize", "train:by_name", "--data", "new.csv", "--target", "android", "--max-loss", "0", "-o",
               "named.cascade")  # fmt: skip
    assert made.returncode == 0, made.stderr
    told = json.loads(
        run(folder, "bench", "named.cascade", "--data", "few.csv", "--target", "android", "--json").stdout
    )
    assert told["rows"] == 40


@pytest.mark.few
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["optimize", "train:of_a_column_that_is_not_there", "--data", "few.csv", "--target", "android", "-o", "x"],
            "cannot be fitted on this data",
        ),
        (["optimize", "train", "--data", "tweets.csv", "-o", "x"], "names no function"),
        (["optimize", "nowhere:f", "--data", "tweets.csv", "-o", "x"], "cannot be imported"),
        (["optimize", "train:fails", "--data", "few.csv", "--target", "android", "-o", "x"], "no data"),
        (["optimize", "train:make_pipeline", "--data", "none.csv", "-o", "x"], "cannot be read"),
        (["optimize", "train:make_pipeline", "--data", "few.csv", "--target", "z", "-o", "x"], "no column 'z'"),
        (["optimize", "train:make_pipeline", "--data", "few.csv", "--target", "android", "-o", "no/x"], "cannot be"),
        (["optimize", "train:make_pipeline", "--data", "few.csv", "--max-loss", "much", "-o", "x"], "is no loss"),
        (["optimize", "train:make_pipeline", "--data", "few.csv", "--confidence", "5%", "-o", "x"], "no confidence"),
        (["explain", "train.py"], "no zip file"),
        (["explain", "none.cascade"], "cannot be read"),
        (["certify", "one.cascade", "--data", "train.py"], "header"),
    ],
)
def test_bad_input_is_refused_in_words_and_leaves_nothing(folder: Path, words: list[str], said: str) -> None:
    before = sorted(folder.iterdir())
    ran = run(folder, *words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == [
        path for path in before if path.name != "__pycache__"
    ]
