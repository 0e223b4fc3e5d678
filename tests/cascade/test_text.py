"""Compiled vectorisers against scikit-learn's own, over settings and all of Unicode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from shoal.cascade import native
from shoal.cascade.frontend.drafts import Draft
from shoal.cascade.frontend.pipelines import lower_pipeline
from shoal.cascade.frontend.transformers import lower_one
from shoal.cascade.steps.text import TextStep, hash_term
from shoal.cascade.table import Table

HOSTILE = [
    "", "a", "  \t\n ", "İstanbul ΑΣ ΑΣ. ß Ǆ", "\u200b\u3000\u3000x", "😀😀😀 ok", "a" * 5000, "\x1c\x1d b\x85c\x1ed",
    "e\u0301e\u0301", "ﬁ ﬂ", "nul\0nul \0", "אבג שלום", "x\u2028\u2029y", "AbC aBc", "\ud7ff\ue000", "١٢٣ ²³",
    "word_word",
]  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
PATTERNS = (r"(?u)\b\w\w+\b", r"\w{1,}", r"\w+", r"(?u)\b\w+\b", r"[a-c]+", r"\S+", r"#(\w+)")
ALPHABET = st.text("abAB .ßİΣ\u0301_1\n\u00a0", max_size=40)


def step_of(vectoriser: Any) -> TextStep:
    draft = lower_one(vectoriser, Draft("", ("text",), True, 1))
    assert draft is not None, "not compiled"
    (step,) = draft.steps
    assert isinstance(step, TextStep)
    return step


def assert_equal(step: TextStep, wanted: Any, texts: list[str]) -> None:
    found = step.apply(texts)
    assert found.shape == wanted.shape
    assert not found.shape[1] or abs(found - wanted).max() < 1e-12
    weights = np.random.default_rng(0).normal(size=(step.width, 3))
    projected = step.projection(weights)
    np.testing.assert_allclose(projected(texts), wanted @ weights, atol=1e-10)
    np.testing.assert_allclose(np.vstack([projected([text]) for text in texts[:3]]), (wanted @ weights)[:3], atol=1e-10)


@st.composite
def vectorisers(draw: Any) -> Any:
    analyzer = draw(st.sampled_from(["word", "char", "char_wb"]))
    low = draw(st.integers(1, 4))
    shared: dict[str, Any] = {
        "analyzer": analyzer, "ngram_range": (low, low + draw(st.integers(0, 3))), "binary": draw(st.booleans()),
        "lowercase": draw(st.booleans()), "strip_accents": draw(st.sampled_from([None, "ascii", "unicode"])),
    }  # fmt: skip
    if analyzer == "word":
        shared |= {"token_pattern": draw(st.sampled_from(PATTERNS)),
                   "stop_words": draw(st.sampled_from([None, ["ab", "a"], "english"]))}  # fmt: skip
    norm = draw(st.sampled_from([None, "l1", "l2"]))
    kind = draw(st.sampled_from(["count", "tfidf", "hash"]))
    if kind == "hash":
        signs = draw(st.booleans())
        return HashingVectorizer(n_features=draw(st.integers(1, 50)), alternate_sign=signs, norm=norm, **shared)
    if kind == "count":
        return CountVectorizer(**shared)
    return TfidfVectorizer(
        norm=norm, use_idf=draw(st.booleans()), smooth_idf=draw(st.booleans()), sublinear_tf=draw(st.booleans()),
        max_features=draw(st.sampled_from([None, 5, 20])), **shared,
    )  # fmt: skip


@given(vectorisers(), st.lists(st.one_of(ALPHABET, TEXT), min_size=2, max_size=8), st.booleans())
@settings(max_examples=100, deadline=None)
def test_each_setting_gives_what_scikit_learn_gives(vectoriser: Any, texts: list[str], hidden: bool) -> None:
    train = [
        "ab aB b a ab_1 ßa",
        "aa bb ab ab\u0301 Σ ΑΣ",
        *[text.encode("utf-8", "ignore").decode() for text in texts],
    ]
    try:
        vectoriser.fit(train)
        wanted = vectoriser.transform([*texts, *train])
    except (ValueError, UnicodeEncodeError):  # an empty vocabulary, or a lone surrogate that is hashed
        return
    step = step_of(vectoriser)
    assert_equal(step, wanted, [*texts, *train])
    if hidden:  # the same in Python alone
        rows = [step._weighted(text) for text in step.prepare([*texts, *train])]
        dense = np.zeros(wanted.shape)
        for row, values in enumerate(rows):
            dense[row, list(values)] = list(values.values())
        np.testing.assert_allclose(dense, wanted.toarray(), atol=1e-12)


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
def test_hostile_texts(analyzer: str) -> None:
    vectoriser = TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 4), sublinear_tf=True).fit(
        [*HOSTILE, "ok b c x ab"]
    )
    texts = [*HOSTILE, "\ud800 x", "x\udfff"]
    assert_equal(step_of(vectoriser), vectoriser.transform(texts), texts)


@pytest.mark.slow
def test_every_code_point_is_the_letter_or_space_that_scikit_learn_takes_it_for() -> None:
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    texts = [f"a{one}b {one}{one} c" for one in points[::37]] + [f"a{one}b" for one in points if one.isspace()]
    vectoriser = CountVectorizer(analyzer="word", token_pattern=r"\w+", lowercase=True).fit(texts)
    assert_equal(step_of(vectoriser), vectoriser.transform(texts), texts)
    by_character = CountVectorizer(analyzer="char_wb", ngram_range=(1, 3), lowercase=False).fit(texts)
    assert_equal(step_of(by_character), by_character.transform(texts), texts)


@pytest.mark.parametrize(
    "vocabulary",
    [
        {"abcdefgh": 0, "ab": 1, "b": 2, "abc": 3},  # longer and shorter than the range
        {"AB": 0, "ab": 1, "Ab": 2},  # the same when folded
        {"ab cd": 0, "ab": 1, "cd ef gh": 2},
    ],
)
@pytest.mark.parametrize("analyzer", ["word", "char"])
def test_a_vocabulary_that_was_given(vocabulary: dict[str, int], analyzer: str) -> None:
    vectoriser = CountVectorizer(analyzer=analyzer, ngram_range=(2, 3), vocabulary=vocabulary).fit([])
    texts = ["abcdefgh ab cd ef gh ab AB Ab", "ab cd", ""]
    assert_equal(step_of(vectoriser), vectoriser.transform(texts), texts)


def test_counts_and_tfidf_as_two_steps_become_one() -> None:
    texts = ["a b b c", "b c d", "d"]
    made = make_pipeline(CountVectorizer(token_pattern=r"\w+"), TfidfTransformer(sublinear_tf=True)).fit(texts)
    first = lower_one(made[0], Draft("", ("text",), True, 1))
    assert first is not None
    both = lower_one(made[1], first)
    assert both is not None
    assert len(both.steps) == 1
    assert_equal(both.steps[0], made.transform(texts), texts)  # type: ignore[arg-type]


def test_terms_hash_as_scikit_learn_has_it() -> None:
    from sklearn.utils import murmurhash3_32

    for term in ("", "a", "ab", "abc", "abcd", "abcde", "Σßx", "😀"):
        wanted = murmurhash3_32(term, seed=0)
        assert hash_term(term, 1000) == (abs(wanted) % 1000, 1 if wanted >= 0 else -1)


def test_a_lone_surrogate_that_is_hashed_is_refused_as_by_the_original() -> None:
    vectoriser = HashingVectorizer(analyzer="char", n_features=8)
    with pytest.raises(UnicodeEncodeError):
        vectoriser.transform(["\ud800"])
    with pytest.raises(UnicodeEncodeError):
        step_of(vectoriser).apply(["ok", "\ud800"])
    with pytest.raises(UnicodeEncodeError):
        step_of(vectoriser).projection(np.ones((8, 1)))(["\ud800"])


@pytest.mark.parametrize(("bad", "error"), [(np.nan, ValueError), (3, AttributeError), (None, AttributeError)])
def test_what_is_no_text_is_refused_as_by_the_original(bad: Any, error: type[Exception]) -> None:
    vectoriser = CountVectorizer().fit(["one two"])
    with pytest.raises(error):
        vectoriser.transform([bad])
    with pytest.raises(error):
        step_of(vectoriser).apply([bad])


def test_bytes_are_decoded() -> None:
    vectoriser = CountVectorizer(encoding="latin-1", token_pattern=r"\w+").fit(["é a"])
    texts: list[Any] = ["é".encode("latin-1"), "a é"]
    assert_equal(step_of(vectoriser), vectoriser.transform(texts), texts)


@pytest.mark.parametrize(
    "setting",
    [{"tokenizer": str.split}, {"preprocessor": str.upper}, {"analyzer": str.split}, {"dtype": np.float32}],
)
def test_what_is_not_known_is_named_and_runs_as_python(setting: dict[str, Any]) -> None:
    from sklearn.linear_model import LogisticRegression

    pipeline = make_pipeline(TfidfVectorizer(**setting), LogisticRegression()).fit(
        ["aa bb", "bb cc", "cc dd"], [0, 1, 1]
    )
    program, remarks = lower_pipeline(pipeline, Table.of(["aa bb", "cc"]))
    assert program.groups[0].opaque
    assert "TfidfVectorizer" in remarks[0]
    rows = ["aa bb", "xx dd"]
    found = program.output.probabilities(program.run(Table.of(rows)).scores)
    np.testing.assert_allclose(found, pipeline.predict_proba(rows), atol=1e-6)


@pytest.mark.skipif(not native.available(), reason="no compiler")
def test_the_work_grows_with_the_text_and_not_with_its_square() -> None:
    vectoriser = TfidfVectorizer(analyzer="char", ngram_range=(2, 6)).fit(["a" * 50, "ab" * 40])
    step = step_of(vectoriser)
    kernel = step._kernel(np.ones((step.width, 1)))
    probes = []
    for size in (10_000, 1_000_000):
        kernel.project(["a" * size])
        probes.append(kernel.probes)
    assert probes[0] <= 5 * 10_000
    assert probes[1] <= 5 * 1_000_000
