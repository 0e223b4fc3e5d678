"""Pipelines and data that several tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

WORDS = ("late", "train", "sun", "rain", "market", "vote", "great", "sad", "win", "loss", "news", "day")


TELLING, VAGUE = ("noed", "oking"), ("perhaps", "likely")


def texts(rows: int, seed: int = 0, *, right: float = 0.997) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Made sentences, no two equal. Characters within a word that is met once tell the label always. A word tells it
    in seven of ten sentences with the probability `right`, in the others in six of ten."""
    draw = np.random.default_rng(seed)
    made, labels = [], draw.integers(0, 2, rows)
    for number, label in enumerate(labels.tolist()):
        vague = draw.random() < 0.3
        sided = label if draw.random() < (0.6 if vague else right) else 1 - label
        words = [*draw.choice(WORDS, draw.integers(2, 6)), (VAGUE if vague else TELLING)[sided]]
        made.append(" ".join([*words, f"{'zqzqzq' if label else 'qxqxqx'}{seed}x{number}"]))
    return made, labels


def text_pipeline() -> Any:
    words = TfidfVectorizer(token_pattern=r"\w{1,}", sublinear_tf=True)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), sublinear_tf=True, max_features=3000)
    return make_pipeline(make_union(words, characters), LogisticRegression(C=4, max_iter=200))


@pytest.fixture(scope="session")
def tweets() -> tuple[list[str], np.ndarray[Any, Any]]:
    return texts(3000)


@pytest.fixture(scope="session")
def optimized(tweets: Any) -> Any:
    from shoal.cascade import optimize

    return optimize(text_pipeline(), *tweets, max_loss=0.01, seed=3)
