"""scikit-learn's transformers as steps. A transformer that is not known here, or has a setting that is not, gives None
and becomes an opaque step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from shoal.cascade.frontend.drafts import Draft
from shoal.cascade.steps.base import Floats
from shoal.cascade.steps.columns import Affine, AsNumbers, Impute, ImputeCategory, OneHot, Ordinal
from shoal.cascade.steps.opaque import OpaqueStep, importable_name
from shoal.cascade.steps.text import ACCENTS, ANALYZERS, TextStep

Lowering = Callable[[Any, Draft], Draft | None]


def lower_one(transformer: Any, draft: Draft) -> Draft | None:
    """The draft with the transformer's step at its end; None where the transformer is not known."""
    found = _LOWERINGS.get(_type_of(transformer))
    return found(transformer, draft) if found else None


def by_column(transformer: Any) -> bool:
    """Whether it treats each column by itself, so that several groups stay apart."""
    return _type_of(transformer) in _BY_COLUMN


def slice_of(transformer: Any, begin: int, end: int) -> Any:
    """A scaler or imputer of the columns from `begin` to `end` only."""

    class Slice:
        def __getattr__(self, name: str) -> Any:
            value = getattr(transformer, name)
            sliced = isinstance(value, np.ndarray) and value.ndim == 1 and name.endswith("_")
            return value[begin:end] if sliced else value

    made = Slice()
    made.__class__.__qualname__ = _type_of(transformer)
    return made


def _type_of(transformer: Any) -> str:
    kind = type(transformer)
    ours = kind.__module__.startswith(("sklearn.", __name__))
    return kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}"


def _text(vectoriser: Any, draft: Draft) -> Draft | None:
    if draft.steps or not draft.one:
        return None
    plain = (
        vectoriser.input == "content"
        and vectoriser.tokenizer is None
        and vectoriser.preprocessor is None
        and vectoriser.analyzer in ANALYZERS
        and (vectoriser.strip_accents in ACCENTS)
        and not callable(vectoriser.stop_words)
        and np.dtype(vectoriser.dtype) in (np.float64, np.int64)
    )
    if not plain:
        return None
    hashed = _type_of(vectoriser) == "HashingVectorizer"
    weighted = _type_of(vectoriser) == "TfidfVectorizer"
    vocabulary: tuple[str, ...] = ()
    if not hashed:
        places = vectoriser.vocabulary_
        vocabulary = tuple(sorted(places, key=places.__getitem__))
        if not all(isinstance(term, str) for term in vocabulary):
            return None
    idf = vectoriser.idf_ if weighted and vectoriser.use_idf else None
    stops = vectoriser.get_stop_words() if vectoriser.analyzer == "word" else None
    step = TextStep(
        analyzer=vectoriser.analyzer, lowest=int(vectoriser.ngram_range[0]), highest=int(vectoriser.ngram_range[1]),
        token_pattern=vectoriser.token_pattern, lowercase=bool(vectoriser.lowercase),
        strip_accents=vectoriser.strip_accents, stop_words=tuple(sorted(stops or ())), encoding=vectoriser.encoding,
        decode_error=vectoriser.decode_error, binary=bool(vectoriser.binary),
        sublinear=bool(weighted and vectoriser.sublinear_tf), norm=vectoriser.norm if weighted or hashed else None,
        hashed_columns=int(vectoriser.n_features) if hashed else 0,
        alternate_sign=bool(hashed and vectoriser.alternate_sign), vocabulary=vocabulary,
        idf=None if idf is None else np.ascontiguousarray(idf, np.float64),
    )  # fmt: skip
    return draft.then(step, step.width)


def _tfidf(transformer: Any, draft: Draft) -> Draft | None:
    """TF-IDF of counts: one step with the counting."""
    if len(draft.steps) != 1 or not isinstance(draft.steps[0], TextStep):
        return None
    counts = draft.steps[0]
    if counts.norm is not None or counts.idf is not None or (counts.hashed_columns and transformer.sublinear_tf):
        return None
    from dataclasses import replace

    idf = np.ascontiguousarray(transformer.idf_, np.float64) if transformer.use_idf else None
    step = replace(counts, sublinear=bool(transformer.sublinear_tf), norm=transformer.norm, idf=idf)
    return replace(draft, steps=(step,))


def _affine(draft: Draft, clip: tuple[float, float] | None = None, **terms: Any) -> Draft:
    arrays: dict[str, Floats] = {
        name: np.asarray(value, np.float64) for name, value in terms.items() if value is not None
    }
    return draft.then(Affine(arrays, clip), draft.width)


def _standard(scaler: Any, draft: Draft) -> Draft | None:
    shift = scaler.mean_ if scaler.with_mean else None
    return _affine(draft, subtract=shift, divide=scaler.scale_ if scaler.with_std else None)


def _min_max(scaler: Any, draft: Draft) -> Draft | None:
    clip = tuple(map(float, scaler.feature_range)) if scaler.clip else None
    return _affine(draft, clip, multiply=scaler.scale_, add=scaler.min_)  # type: ignore[arg-type]  # two floats


def _max_abs(scaler: Any, draft: Draft) -> Draft | None:
    return None if getattr(scaler, "clip", False) else _affine(draft, divide=scaler.scale_)


def _robust(scaler: Any, draft: Draft) -> Draft | None:
    shift = scaler.center_ if scaler.with_centering else None
    return _affine(draft, subtract=shift, divide=scaler.scale_ if scaler.with_scaling else None)


def _impute(imputer: Any, draft: Draft) -> Draft | None:
    if imputer.add_indicator:
        return None
    fill = np.asarray(imputer.statistics_)
    if fill.dtype.kind in "fiub":
        missing = imputer.missing_values
        if not isinstance(missing, int | float) or np.isnan(fill.astype(np.float64)).any():
            return None
        return draft.then(Impute(fill.astype(np.float64), None if missing != missing else float(missing)), draft.width)
    values = tuple(fill.tolist())
    missing = imputer.missing_values
    known = missing is None or (isinstance(missing, float) and missing != missing)
    if not known or not all(isinstance(one, str | int | float) and one == one for one in values):
        return None
    return draft.then(ImputeCategory(values), draft.width)


def _plain_categories(categories: Any) -> tuple[tuple[Any, ...], ...] | None:
    """As Python values; None where one is neither text nor a number. None (the value) and NaN are both missing, and
    one column must not have both."""
    made = tuple(tuple(of.tolist()) for of in categories)
    for of in made:
        if not all(isinstance(one, str | int | float) for one in of):
            return None
    return made


def _one_hot(encoder: Any, draft: Draft) -> Draft | None:
    categories = _plain_categories(encoder.categories_)
    rare = any(of is not None for of in getattr(encoder, "infrequent_categories_", ()) or ())
    if categories is None or rare or np.dtype(encoder.dtype) != np.float64 or draft.one:
        return None
    if encoder.handle_unknown not in ("error", "ignore", "infrequent_if_exist"):
        return None
    drop: Sequence[int | None] = [None] * len(categories) if encoder.drop_idx_ is None else list(encoder.drop_idx_)
    dropped = tuple(-1 if one is None else int(one) for one in drop)
    step = OneHot(categories, dropped, encoder.handle_unknown == "error")
    return draft.then(step, step.width)


def _ordinal(encoder: Any, draft: Draft) -> Draft | None:
    categories = _plain_categories(encoder.categories_)
    rare = any(of is not None for of in getattr(encoder, "infrequent_categories_", ()) or ())
    if categories is None or rare or np.dtype(encoder.dtype) != np.float64 or draft.one:
        return None
    unknown = float(encoder.unknown_value) if encoder.handle_unknown == "use_encoded_value" else None
    step = Ordinal(categories, unknown, float(encoder.encoded_missing_value))
    return draft.then(step, step.width)


def _function(transformer: Any, draft: Draft) -> Draft | None:
    function = transformer.func
    if function is None:
        return draft.then(AsNumbers(), draft.width)
    name = importable_name(function)
    if not name or transformer.kw_args:
        return None
    return draft.then(OpaqueStep(name, function, None, name, names_of(draft)), -1)


def _lookup(transformer: Any, draft: Draft) -> Draft | None:
    if draft.steps:
        return None
    step = transformer.step()
    return draft.then(step, step.width)


def names_of(draft: Draft) -> tuple[str, ...] | None:
    """The names that a data frame of the draft's columns has; None where they have none, or steps have made others."""
    named = not draft.steps and not draft.one and all(isinstance(key, str) for key in draft.columns)
    return tuple(map(str, draft.columns)) if named else None


_LOWERINGS: Mapping[str, Lowering] = MappingProxyType(
    {
        "CountVectorizer": _text, "TfidfVectorizer": _text, "HashingVectorizer": _text, "TfidfTransformer": _tfidf,
        "StandardScaler": _standard, "MinMaxScaler": _min_max, "MaxAbsScaler": _max_abs, "RobustScaler": _robust,
        "SimpleImputer": _impute, "OneHotEncoder": _one_hot, "OrdinalEncoder": _ordinal,
        "FunctionTransformer": _function,
        "shoal.cascade.features.Lookup": _lookup, "shoal.cascade.features.Join": _lookup,
    }
)  # fmt: skip
_BY_COLUMN = frozenset({"StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"})
