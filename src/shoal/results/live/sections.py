"""Section of a job's manifest about its results."""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from shoal.contract.manifest import parse_stored
from shoal.contract.records import JobRecord
from shoal.extension import LiveJob
from shoal.results.section import ResultsJob

log = structlog.get_logger("shoal.results")

NAME = "results"
_SECTION = f'"{NAME}"'
_NOTHING = ResultsJob.model_validate({})


def asked(job: LiveJob) -> ResultsJob:
    if _SECTION not in job.job.manifest:
        return _NOTHING
    return ResultsJob.model_validate(job.manifest.extensions.get(NAME) or {})


def section_of(job: JobRecord) -> ResultsJob:
    """Also of a job that is over. Of an earlier version it may say what is no longer understood: then nothing."""
    if _SECTION not in job.manifest:
        return _NOTHING
    try:
        return ResultsJob.model_validate(parse_stored(job.manifest, source=job.id).extensions.get(NAME) or {})
    except ValidationError:
        log.warning("a job's section of results is not understood", job=job.id)
        return _NOTHING
