"""A cascade against its own full path and against the original pipeline, on the same rows, in turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cascade.cascade import Cascade
from shoal.cascade.costs import compare
from shoal.cascade.optimize import rows_of
from shoal.cascade.table import require_rows
from shoal.core import Invalid

BATCH_ROWS = 2000
SINGLE_ROWS = 50


def bench(cascade: Cascade, X: Any, y: Any, pipeline: Any) -> dict[str, Any]:
    """Costs by way, ratios to the slowest, differences in predictions. A pipeline that is not fitted is fitted on these
    rows. Raises Invalid where it cannot be."""
    table = cascade.table(X)
    require_rows(table, y)
    rows = np.arange(min(len(table), BATCH_ROWS))
    batch = rows_of(X, rows)
    singles = [rows_of(X, rows[place : place + 1]) for place in range(min(SINGLE_ROWS, len(rows)))]
    full = Cascade(cascade.full, cascade.columns)
    ways = {"full path, compiled": full.predict}
    if cascade.certificate is not None:
        ways = {"cascade": cascade.predict, **ways}
    if pipeline is not None:
        ways = {"original": _fitted(pipeline, X, y).predict, **ways}
    measured = compare(ways, (batch, len(rows)), singles)
    first = next(iter(measured.values()))
    wanted, stages = full.predict(batch), cascade.answers(batch)[1]
    return {
        "rows": len(rows),
        "ways": [
            {
                "way": name,
                "batch_us": of["batch"].us, "batch_spread_us": of["batch"].spread_us,
                "single_us": of["single"].us, "single_spread_us": of["single"].spread_us,
                "batch_ratio": first["batch"].us / of["batch"].us,
                "single_ratio": first["single"].us / of["single"].us,
            }
            for name, of in measured.items()
        ],
        "differ_from_full": int((np.asarray(cascade.predict(batch)) != wanted).sum()),
        "answered_by_stage": np.bincount(stages, minlength=len(cascade.program.stages)).tolist(),
    }  # fmt: skip


def _fitted(pipeline: Any, X: Any, y: Any) -> Any:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(pipeline)
    except NotFittedError:
        if y is None:
            raise Invalid(
                "the pipeline is not fitted", where="--against", hint="name the labels with --target"
            ) from None
        pipeline.fit(X, y)
    return pipeline
