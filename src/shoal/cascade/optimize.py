"""One call from a pipeline and data to a cascade: compile, measure, choose, certify."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade import native
from shoal.cascade.caching import choose_caches
from shoal.cascade.cascade import Cascade
from shoal.cascade.certificate import Aim, rows_needed
from shoal.cascade.costs import Cost, GroupCost, choose_evaluator, compare, group_costs, interleaved, model_cost
from shoal.cascade.frontend.models import lower_model
from shoal.cascade.frontend.pipelines import lower_pipeline, split
from shoal.cascade.methods import Method
from shoal.cascade.models.base import Model
from shoal.cascade.models.network import Network, evaluated_like
from shoal.cascade.plan import Plan, make_plan, view_classes, view_values
from shoal.cascade.program import Program, Stage
from shoal.cascade.roles import SHARES, Roles, divide, fingerprints, units_of
from shoal.cascade.staged import alone
from shoal.cascade.steps.base import Block, Floats
from shoal.cascade.subsets import Importance, Subset, Subsets, candidates, cost_between, importances
from shoal.cascade.table import Table, kinds_of, require_rows, require_whole, row_hashes
from shoal.cascade.topk import certify, least_ratio, query_size
from shoal.cascade.willump import willump
from shoal.core import Invalid

EQUAL_WITHIN = 1e-9
"""Relative: what a compiled pipeline's scores may differ from the original's by the order of additions."""
CHECKED_ROWS = 500
WORTH_IT = 0.95
"""A cascade that saves less than a twentieth is left out: it is one more thing to understand."""
MOST_SHARE_OF_CLIP = 0.25
"""Default clip of a regression: a quarter of the target's range between its 1st and 99th percentile."""
OBJECTIVES = ("batch", "single", "lookups")
"""What stages save: microseconds a row in batches, or a row at a time, or keys asked of a store."""
RANKING_SHARES = (0.35, 0.15, 0.5)
"""With a filter to choose: the more rows a query has, the smaller a share of them is the best k."""
PRECISION, QUERIES_SHARE = 0.95, 0.99
"""Of a filter, as in Willump's evaluation."""
NOTICEABLE, SURE = 0.002, 2.0
"""By how much a model must be better without a group, and by how many standard errors, before that is said."""
LEAK = "if it is made of labels, make it of rows that no model is trained on"
Report = Callable[[str], None]


def optimize(
    pipeline: Any, X: Any, y: Any = None, *, max_loss: float = 0.0, confidence: float = 0.95,
    method: Method | str = Method.SHOAL, groups: Sequence[Any] | None = None,
    sample_weight: Sequence[float] | None = None, clip: float | None = None, objective: str = "batch",
    top_k: int | None = None, seed: int = 0, progress: Report | None = None,
) -> Cascade:  # fmt: skip
    """Compile a pipeline, and approximate it as far as a certificate allows.

    pipeline: an estimator or Pipeline of scikit-learn. One that is not fitted is fitted on half of the rows. One that
        is fitted must not have seen these rows: a certificate on rows of the training would say too much.
    X, y: rows and labels. Without labels the cascade is certified by disagreement alone.
    max_loss: what may be lost, as a share of correct answers (0.005: half a point), or for regression the increase of
        the mean absolute error. 0: compile only.
    method: `shoal`; `willump` (the paper's own, without a certificate); `compile`; `cascade` (stages of the original's
        code, to see what they alone bring).
    top_k: certify a filter for the best `top_k` rows instead, with a precision of 0.95 in 99 % of queries.
    groups: rows with the same value stay in one role, and are one unit of the certificate.
    objective: what stages are chosen to save: time a row in batches (`batch`) or of one row alone (`single`), or keys
        asked of stores (`lookups`).
    Raises Invalid for what cannot be meant.
    """
    progress = progress or _silent
    chosen, aim = _checked(method, max_loss, confidence, objective, clip, seed)
    table = Table.of(X)
    truth = None if y is None else np.asarray(y)
    require_rows(table, truth, sample_weight)
    require_whole(truth)
    roles = divide(table, seed, groups, SHARES if top_k is None else RANKING_SHARES)
    progress(f"{len(roles.fit):,} rows fit, {len(roles.select):,} select, {len(roles.certify):,} certify")
    weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
    original = _fitted(pipeline, X, truth, roles, weights, progress)
    program, remarks, compiled = _compiled(original, X, table, roles, progress)
    program, evaluators = choose_evaluator(program, table.take(roles.select[:CHECKED_ROWS]), objective)
    program, caches = choose_caches(program, table.take(np.sort(np.concatenate([roles.fit, roles.select]))))
    costs = group_costs(program, table.take(roles.select)) if compiled else []
    cascade = Cascade(program, list(table.columns), original=original)
    cascade.kinds = kinds_of(table)
    cascade.used = {role: roles.fingerprints(role) for role in ("fit", "select")}
    report = _report(program, remarks, costs, roles, seed)
    if compiled and program.stages[-1].model.kind != "linear":
        measured = model_cost(program, table.take(roles.select))
        report["model_cost"] = {how: one.as_json() for how, one in measured.items()}
    if compiled:
        report["against_original"] = _against(cascade, original, X, roles)
    cascade.prefer_original |= not compiled
    if isinstance(model := program.stages[-1].model, Network):
        report["evaluator"] = {"chosen": model.evaluator, "us": {name: one.us for name, one in evaluators.items()}}
        if not evaluators:
            report["remarks"].append("ONNX Runtime was not tried: it needs the packages onnx and onnxruntime")
    report["caches"] = caches
    report["library_versions"] = _versions()
    cascade.report = report
    if top_k is None and (chosen is Method.COMPILE or (max_loss == 0 and chosen is not Method.WILLUMP)):
        report["reason"] = "compiled only: no loss is allowed" if chosen is not Method.COMPILE else "compiled only"
        return cascade
    if len(program.groups) < 2 or not compiled:
        one = "there is one group of features, so there is nothing to leave out"
        report["reason"] = one if compiled else "the pipeline could not be compiled"
        return cascade
    if clip is None and program.output.regression and truth is not None:
        low, high = np.quantile(truth[roles.select], [0.01, 0.99])
        clip = float(high - low) * MOST_SHARE_OF_CLIP or 1.0
    aim = replace(aim, clip=float(clip) if clip and program.output.regression else 1.0)
    progress("fitting models of fewer features")
    subsets = _subsets(program, original, table, truth, roles, weights)
    importance = importances(subsets, len(program.groups), seed)
    _report_importance(report, importance, subsets, regression=program.output.regression)
    before = chosen is Method.CASCADE
    if objective == "lookups":
        group_us = [float(group.lookup is not None) for group in program.groups]
    else:
        group_us = [_us(one, objective, before=before) for one in costs]
    if chosen is Method.WILLUMP:
        return willump(cascade, subsets, group_us, truth, roles, seed)
    if top_k is not None:
        progress(f"choosing a filter for the best {top_k:,}")
        _rank(cascade, subsets, importance, group_us, table.take(roles.certify), top_k, aim, seed)
        return cascade
    progress("choosing stages")
    plan = _plan(program, subsets, importance, group_us, truth, roles, aim, groups, models=objective != "lookups")
    _report_plan(report, plan, program)
    if plan.cost > WORTH_IT * plan.full_cost:
        units = _unit_count(groups, roles.certify)
        report["reason"] = _why_not(plan, aim, units)
        return cascade
    stages = [Stage(subset, subsets.model(subset)) for subset in plan.chain[:-1]]
    cascade.prepare(stages, plan.rules, plan.test, aim, plan.expected)
    progress(f"certifying by {plan.test}")
    labels = None if truth is None else truth[roles.certify]
    cascade.certify(rows_of(X, roles.certify), labels, units=units_of(groups, roles.certify))
    return cascade


def _silent(text: str) -> None:
    """Report no progress."""


def _checked(
    method: Method | str, max_loss: float, confidence: float, objective: str, clip: float | None, seed: int
) -> tuple[Method, Aim]:
    if not max_loss >= 0:
        raise Invalid(f"a loss is not negative: {max_loss}", where="max_loss")
    if clip is not None and not 0 < clip < np.inf:
        raise Invalid(f"a clip is above zero: {clip}", where="clip")
    if seed < 0:
        raise Invalid(f"a seed is not negative: {seed}", where="seed")
    if not 0.5 <= confidence < 1:
        raise Invalid(f"a confidence lies between 0.5 and 1: {confidence}", where="confidence", hint="0.95 is usual")
    if objective not in OBJECTIVES:
        raise Invalid(f"no objective {objective!r}", where="objective", hint=" or ".join(OBJECTIVES))
    try:
        return Method(method), Aim(max_loss, confidence)
    except ValueError:
        raise Invalid(f"no method {method!r}", where="method", hint=", ".join(Method)) from None


def rows_of(data: Any, rows: NDArray[np.intp]) -> Any:
    """Some rows, in the form in which the data came."""
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if isinstance(data, Mapping):
        return {name: np.asarray(column)[rows] for name, column in data.items()}
    if isinstance(data, list | tuple):
        return [data[row] for row in rows.tolist()]
    return data[rows]


def _fitted(
    pipeline: Any, X: Any, truth: NDArray[Any] | None, roles: Roles, weights: Floats | None, progress: Report
) -> Any:
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    if not hasattr(pipeline, "fit"):
        raise Invalid(
            f"{type(pipeline).__name__} is no pipeline",
            where="pipeline",
            hint="give a scikit-learn estimator or Pipeline",
        )
    try:
        check_is_fitted(pipeline)
    except NotFittedError:
        if truth is None:
            raise Invalid("a pipeline that is not fitted needs labels", where="y") from None
        progress("fitting the pipeline")
        made = clone(pipeline)
        extra = {} if weights is None else {_weight_name(made): weights[roles.fit]}
        try:
            made.fit(rows_of(X, roles.fit), truth[roles.fit], **extra)
        except (ValueError, TypeError) as error:
            raise Invalid(f"the pipeline cannot be fitted on this data: {error}", where="pipeline") from error
        return made
    return pipeline


def _weight_name(pipeline: Any) -> str:
    return f"{pipeline.steps[-1][0]}__sample_weight" if hasattr(pipeline, "steps") else "sample_weight"


def _compiled(original: Any, X: Any, table: Table, roles: Roles, progress: Report) -> tuple[Program, list[str], bool]:
    """The program, remarks, and whether it is the compiled one: a program whose predictions are not the original's is
    left out, and said so."""
    progress("compiling")
    sample = roles.select[:CHECKED_ROWS]
    program, remarks = lower_pipeline(original, table.take(sample))
    problem = difference(program, original, rows_of(X, sample))
    if problem:
        remarks.append(f"the compiled pipeline would differ from the original ({problem}), so the original answers")
    return program, remarks, not problem


def difference(program: Program, original: Any, X: Any) -> str:
    """How the program's predictions differ from the original's on these rows; empty where they do not."""
    answers = program.run(Table.of(X))
    wanted = np.asarray(original.predict(X))
    if program.output.regression:
        found = answers.scores[:, 0]
        apart = float(np.abs(found - wanted).max(initial=0) / max(1.0, float(np.abs(wanted).max(initial=0))))
        return f"a prediction is {apart:.1e} off" if apart > EQUAL_WITHIN else ""
    different = int((program.output.named(program.output.labels(answers.scores)) != wanted).sum())
    return f"{different} of {len(wanted)} labels" if different else ""


def _subsets(
    program: Program, original: Any, table: Table, truth: NDArray[Any] | None, roles: Roles, weights: Floats | None
) -> Subsets:
    from sklearn.base import clone

    _, model = split(original)
    everything = tuple(range(len(program.groups)))
    fit_rows, select_rows = table.take(roles.fit), table.take(roles.select)
    full_model, output = program.stages[-1].model, program.output
    given = truth
    if given is None:  # the full pipeline's own answers stand in
        scores = program.run(table).scores
        given = scores[:, 0] if output.regression else output.named(output.labels(scores))
    fit_labels, select_labels = given[roles.fit], given[roles.select]
    places = None if output.regression else _places(output.classes, select_labels)

    def fit(features: Block) -> Model:
        extra = {} if weights is None else {"sample_weight": weights[roles.fit]}
        made = evaluated_like(lower_model(clone(model).fit(features, fit_labels, **extra)), full_model)
        if made.outputs != full_model.outputs or made.output.classes != output.classes:
            raise Invalid("the fit rows lack a class that the pipeline knows", where="data", hint="give more rows")
        return made

    def merits(one: Model, scores: Floats) -> Floats:
        if places is None:
            return np.asarray(-np.abs(scores[:, 0] - select_labels))
        return np.asarray(one.output.labels(scores) == places, np.float64)

    if places is None:
        empty = -float(np.abs(select_labels - np.median(fit_labels)).mean())
    else:
        empty = float((places == np.bincount(_places(output.classes, fit_labels)).argmax()).mean())
    made = Subsets(program.groups, fit_rows, select_rows, fit, merits, empty)
    made.give(everything, full_model)
    return made


def _places(classes: Sequence[Any], labels: NDArray[Any]) -> NDArray[np.intp]:
    """The place of each label among the classes; -1 for one that is not among them."""
    place = {one: at for at, one in enumerate(classes)}
    return np.array([place.get(one, -1) for one in labels.tolist()], np.intp)


def _plan(
    program: Program, subsets: Subsets, importance: list[Importance], group_us: list[float],
    truth: NDArray[Any] | None, roles: Roles, aim: Aim, groups: Sequence[Any] | None, *, models: bool,
) -> Plan:  # fmt: skip
    everything = tuple(range(len(program.groups)))
    full = subsets.scores(everything)
    output = program.output
    select = None if truth is None else truth[roles.select]
    views = {}
    for subset in candidates(len(everything), group_us, importance):
        own = subsets.scores(subset)
        if output.regression:
            views[subset] = view_values(own, full, select, aim.clip)
        else:
            views[subset] = view_classes(output, own, full, None if select is None else _places(output.classes, select))
    model_us = _model_costs(subsets, [*views, everything]) if models else {}
    cost = cost_between(group_us, model_us)
    units = _unit_count(groups, roles.certify)
    return make_plan(views, len(everything), cost, aim, units, labels=truth is not None)


def _rank(
    cascade: Cascade, subsets: Subsets, importance: list[Importance], group_us: list[float], certify_rows: Table,
    k: int, aim: Aim, seed: int,
) -> None:  # fmt: skip
    """Choose and certify the stage that filters: the one with which a query costs least."""
    if cascade.full.stages[0].model.outputs != 1 or not 0 < k <= len(certify_rows) // 2:
        most = len(certify_rows) // 2
        raise Invalid(f"the best {k} of a query cannot be asked for", where="top_k", hint=f"1 to {most}, of one score")
    everything = tuple(range(len(group_us)))
    full = subsets.scores(everything)[:, 0]
    rows, chosen = query_size(len(certify_rows), k), (float(sum(group_us)), everything, 1.0)
    for subset in candidates(len(everything), group_us, importance):
        if k > len(full) // 2:
            break
        ratio = least_ratio(subsets.scores(subset)[:, 0], full, k, PRECISION, QUERIES_SHARE, seed)
        if ratio is None:
            continue
        cost = sum(group_us[one] for one in subset)
        expected = cost + min(1.0, ratio * k / rows) * sum(group_us)
        if expected < chosen[0]:
            chosen = expected, subset, ratio
    _, subset, ratio = chosen
    if subset == everything:
        cascade.report["reason"] = f"no cheaper stage finds the best {k:,} for less than a full ranking"
        return
    stage = Stage(subset, subsets.model(subset))
    small = alone(cascade.full, stage).run(certify_rows).scores[:, 0]
    truth = cascade.full.run(certify_rows).scores[:, 0]
    found = certify(small, truth, k, ratio, PRECISION, QUERIES_SHARE, aim.confidence, seed + 1)
    cascade.used["certify"] = fingerprints(row_hashes(certify_rows))
    if found is None:
        cascade.report["reason"] = f"no filter for the best {k:,} could be certified"
        return
    cascade.use_filter(stage, found)


def _model_costs(subsets: Subsets, chosen: list[Subset]) -> dict[Subset, float]:
    """Microseconds a row of each model by itself. Linear models have none of their own: their groups do the work."""
    if subsets.model(chosen[-1]).kind == "linear":
        return {}
    calls = {}
    for place, subset in enumerate(chosen):
        model, features = subsets.model(subset), subsets.features(subset)[:1000]
        calls[str(place)] = ((lambda model=model, features=features: model.scores(features)), features.shape[0])
    measured = interleaved(calls, rounds=3)
    return {subset: measured[str(place)].us for place, subset in enumerate(chosen)}


def _us(cost: GroupCost, objective: str, *, before: bool) -> float:
    old = cost.before_single if objective == "single" else cost.before
    if before and old is not None:
        return old.us
    return cost.batch.us if objective == "batch" else cost.single.us


def _unit_count(groups: Sequence[Any] | None, rows: NDArray[np.intp]) -> int:
    units = units_of(groups, rows)
    return len(rows) if units is None else int(units.max()) + 1


def _why_not(plan: Plan, aim: Aim, units: int) -> str:
    need = rows_needed(aim.relative, aim.confidence)
    loss = f"{aim.tolerance * 100:g} pt" if aim.clip == 1.0 else f"{aim.tolerance:g}"
    if units < need:
        return (
            f"{loss} at {aim.confidence * 100:g} % needs at least {need:,} rows without a disagreement; "
            f"there are {units:,}"
        )
    if not plan.rules:
        return f"on the select rows no cheaper stage agrees well enough with the full pipeline for {loss}"
    saved = 1 - plan.cost / plan.full_cost
    return f"stages would save {saved:.0%} of {plan.full_cost:.2f} us a row: not worth them"


def _report(program: Program, remarks: list[str], costs: list[GroupCost], roles: Roles, seed: int) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": group.name,
                "columns": list(group.lineage),
                "steps": [step.kind for step in group.steps],
                "width": group.width,
                "opaque": group.opaque,
                "cost": cost.as_json(),
            }
            for group, cost in zip(program.groups, costs, strict=False)
        ],
        "model": program.stages[-1].model.kind,
        "native": native.available(),
        "remarks": remarks + ([] if native.available() else [native.capability().consequence]),
        "rows": {"fit": len(roles.fit), "select": len(roles.select), "certify": len(roles.certify)},
        "digests": roles.digests(),
        "seed": seed,
        "approximated": 0.0,
    }


def _against(cascade: Cascade, original: Any, X: Any, roles: Roles) -> dict[str, Any]:
    """The compiled pipeline against the original, measured in turn; the faster one of them answers from now on."""
    rows = roles.select[:CHECKED_ROWS]
    singles = [rows_of(X, rows[place : place + 1]) for place in range(min(8, len(rows)))]
    ways = {"original": original.predict, "compiled": cascade.predict}
    measured = compare(ways, (rows_of(X, rows), len(rows)), singles)
    ratio: Callable[[str], float] = lambda how: measured["original"][how].us / measured["compiled"][how].us  # noqa: E731
    cascade.prefer_original = ratio("batch") < 1 and ratio("single") < 1
    costs: dict[str, dict[str, Cost]] = measured
    return {
        **{way: {how: one.as_json() for how, one in of.items()} for way, of in costs.items()},
        "faster": {"batch": ratio("batch"), "single": ratio("single")},
        "answers": "original" if cascade.prefer_original else "compiled",
    }


def _report_importance(
    report: dict[str, Any], importance: list[Importance], subsets: Subsets, *, regression: bool
) -> None:
    full = subsets.worth(tuple(range(len(importance))))
    for group, one in zip(report["groups"], importance, strict=True):
        group["importance"] = asdict(one)
        if one.conditional < -max(NOTICEABLE, SURE * one.error):
            better = f"{-one.conditional * 100:.1f} ± {one.error * 100:.1f} points better"
            if regression:
                better = f"nearer by {-one.conditional:.3g} ± {one.error:.2g}"
            report["remarks"].append(f"on the select rows the model is {better} without {group['name']}: {LEAK}")
    report["select_score"] = full


def _report_plan(report: dict[str, Any], plan: Plan, program: Program) -> None:
    names = [group.name for group in program.groups]
    report["plan"] = {
        "stages": [[names[place] for place in subset] for subset in plan.chain],
        "test": plan.test.value,
        "candidates": len(plan.rules),
        "full_us": plan.full_cost,
        "expected_us": plan.cost if plan.rules else None,
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in ("numpy", "scipy", "scikit-learn", "lightgbm", "xgboost"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
