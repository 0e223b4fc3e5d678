"""A fitted scikit-learn pipeline as a program: its column transformers and unions become feature groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.cascade.frontend.drafts import Draft
from shoal.cascade.frontend.models import lower_model
from shoal.cascade.frontend.transformers import by_column, lower_one, names_of, slice_of
from shoal.cascade.program import Group, Program, Stage
from shoal.cascade.steps.columns import Affine
from shoal.cascade.steps.opaque import OpaqueStep
from shoal.cascade.table import TEXT, Table
from shoal.core import Invalid

SAMPLE_ROWS = 8


@dataclass(frozen=True)
class _Seen:
    """`sample`: a few rows, to see how wide the output of an opaque step is; `remarks`: on what stays Python."""

    sample: Table
    remarks: list[str]


def lower_pipeline(pipeline: Any, sample: Table) -> tuple[Program, list[str]]:
    """The program of a fitted pipeline, and remarks on what stays Python. `sample`: a few rows, to see how wide the
    output of opaque steps is. Raises Invalid where the estimator cannot predict."""
    transformers, model = split(pipeline)
    whole = _input(sample)
    seen = _Seen(sample.take(np.arange(min(len(sample), SAMPLE_ROWS))), [])
    drafts = _chain(transformers, whole, seen)
    if not transformers:
        drafts = [whole]
    groups = _distinct([_measured(draft, seen).group() for draft in drafts])
    try:
        lowered = lower_model(model)
    except TypeError as error:
        raise Invalid(str(error), where="pipeline", hint="the last step must have `predict`") from None
    if lowered.kind == "opaque":
        seen.remarks.append(f"the model {type(model).__name__} runs as Python")
    return Program(groups, [Stage(tuple(range(len(groups))), lowered)]), seen.remarks


def split(pipeline: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The transformers by name, and the model at the end."""
    if not hasattr(pipeline, "steps"):
        return [], pipeline
    return [(name, one) for name, one in pipeline.steps[:-1] if one not in (None, "passthrough")], pipeline.steps[-1][1]


def _input(sample: Table) -> Draft:
    keys = tuple(sample.columns)
    return Draft("", keys, keys == (TEXT,), len(keys))


def _chain(steps: list[tuple[str, Any]], whole: Draft, seen: _Seen) -> list[Draft]:
    drafts = [whole]
    for at, (name, transformer) in enumerate(steps):
        found = _apply(transformer, drafts, seen)
        if found is None:  # it mixes groups, or is not known: all up to here is one opaque step
            from sklearn.pipeline import Pipeline

            prefix = Pipeline(steps[: at + 1])
            drafts = [_opaque(name if at == 0 else f"{steps[0][0]} to {name}", prefix, whole, seen)]
        else:
            drafts = found
    return drafts


def _apply(transformer: Any, drafts: list[Draft], seen: _Seen) -> list[Draft] | None:
    raw = len(drafts) == 1 and not drafts[0].steps
    if hasattr(transformer, "transformers_"):
        return _columns(transformer, drafts[0], seen) if raw else None
    if hasattr(transformer, "transformer_list"):
        return _union(transformer, drafts[0], seen) if len(drafts) == 1 else None
    if hasattr(transformer, "layout_"):  # ours: a recorded function
        return _recorded(transformer, seen) if raw else None
    if hasattr(transformer, "steps"):
        for _, one in transformer.steps:
            if one in (None, "passthrough"):
                continue
            found = _apply(one, drafts, seen)
            if found is None:
                return None
            drafts = found
        return drafts
    if len(drafts) == 1:
        found_one = lower_one(transformer, drafts[0])
        return None if found_one is None else [_measured(found_one, seen)]
    if not by_column(transformer):
        return None
    made, begin = [], 0
    for draft in drafts:
        one = lower_one(slice_of(transformer, begin, begin + draft.width), draft)
        if one is None:
            return None
        made.append(one)
        begin += draft.width
    return made


def _recorded(transformer: Any, seen: _Seen) -> list[Draft]:
    """A group for each marked function, and one for the code around them."""
    if transformer.layout_.eager:
        names = ", ".join(sorted(transformer.layout_.eager))
        seen.remarks.append(f"{names}: the code around looks into the value, so it is a part of the group `code`")
    columns = tuple(transformer.names_)
    return [Draft(step.group, columns, False, step.width, (step,)) for step in transformer.steps()]


def _member(name: str, transformer: Any, draft: Draft, seen: _Seen) -> list[Draft]:
    """A member of a column transformer or union, which reads the draft."""
    if transformer == "drop" or not draft.columns:
        return []
    if isinstance(transformer, str):
        return [replace(draft, name=name)]
    found = _apply(transformer, [draft], seen)
    if found is None:
        found = [_opaque(name, transformer, draft, seen)]
    single = len(found) == 1 and not draft.steps
    named = [replace(one, name=f"{name}.{one.name}" if one.name and one.name != name else name) for one in found]
    if not single or named[0].original is not None:
        return named
    reading = OpaqueStep(name, transformer.transform, names=names_of(draft))
    return [replace(named[0], original=lambda table: reading.apply(_read(draft, table)))]


def _read(draft: Draft, table: Table) -> Any:
    return table.column(draft.columns[0]) if draft.one else table.block(draft.columns)


def _columns(transformer: Any, whole: Draft, seen: _Seen) -> list[Draft]:
    keys = tuple(getattr(transformer, "feature_names_in_", whole.columns))
    places = transformer._transformer_to_input_indices
    made: list[Draft] = []
    for name, one, columns in transformer.transformers_:
        chosen = tuple(keys[place] for place in places[name])
        scalar = isinstance(columns, str | int | np.integer)
        found = _member(name, one, Draft("", chosen, scalar, len(chosen)), seen)
        weight = (transformer.transformer_weights or {}).get(name)
        made += [_weighted(draft, weight) for draft in found]
    return made


def _union(union: Any, draft: Draft, seen: _Seen) -> list[Draft]:
    made: list[Draft] = []
    for name, one in union.transformer_list:
        weight = (union.transformer_weights or {}).get(name)
        made += [_weighted(member, weight) for member in _member(name, one, draft, seen)]
    return made


def _weighted(draft: Draft, weight: float | None) -> Draft:
    if weight is None or weight == 1.0:
        return draft
    return draft.then(Affine({"multiply": np.asarray(float(weight))}), draft.width)


def _opaque(name: str, transformer: Any, draft: Draft, seen: _Seen) -> Draft:
    inner = getattr(transformer, "steps", [(name, transformer)])[-1][1]
    seen.remarks.append(f"{name} ({type(inner).__name__}) is not known or has a setting that is not: it runs as Python")
    step = OpaqueStep(name, transformer.transform, names=names_of(draft))
    return _measured(replace(draft, name=name, steps=(*draft.steps, step), width=-1), seen)


def _measured(draft: Draft, seen: _Seen) -> Draft:
    """With the width that its output has."""
    if draft.width >= 0:
        return draft
    found = draft.group().features(seen.sample)
    if np.ndim(found) != 2 and not hasattr(found, "tocsr"):
        raise Invalid(f"the step {draft.name} gives no matrix", where=draft.name)
    return replace(draft, width=int(found.shape[1]))


def _distinct(groups: list[Group]) -> list[Group]:
    """The groups under names that differ."""
    names: dict[str, int] = {}
    made = []
    for group in groups:
        names[group.name] = names.get(group.name, 0) + 1
        number = names[group.name]
        made.append(group if number == 1 else replace(group, name=f"{group.name}-{number}"))
    return made
