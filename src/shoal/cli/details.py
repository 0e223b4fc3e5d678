"""One job for people: all about it, why it waits, and of a failed one what it said last and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.base.console import output
from shoal.cli import views
from shoal.cli.commandline import unwrapped
from shoal.cli.terminal import Harmless
from shoal.contract.lifecycle import ErrorCode, JobState
from shoal.core import Fault, ShoalError

if TYPE_CHECKING:
    from shoal.sdk import Client
    from shoal.sdk.models import ExplanationView, JobDetail

_TAIL_LINES = 10
_MOST_FILES = 10_000
_LONGEST_LINE = 500
_LONGEST_COMMAND = 1000
CAUSES: Mapping[Fault, str] = {
    Fault.USER: "the job itself",
    Fault.PLATFORM: "Shoal",
    Fault.INFRASTRUCTURE: "the machine",
}
"""What a failure came from, in words."""

_SUBMIT_AGAIN = "correct it and submit it again"
REMEDIES: Mapping[ErrorCode, str] = {
    ErrorCode.EXIT: f"see what the program wrote last; {_SUBMIT_AGAIN}",
    ErrorCode.SIGNAL: f"a crash of the program, or a `kill` by somebody; {_SUBMIT_AGAIN}",
    ErrorCode.OUT_OF_MEMORY: "ask for more: `resources.memory` in the manifest, `--memory` of `shoal run`",
    ErrorCode.COMMAND_NOT_FOUND: "check the name; a program of a virtual environment needs its whole path, or PATH in "
    "`env`",
    ErrorCode.MAX_RUNTIME: "ask for more: `max_runtime` in the manifest, `--max-runtime` of `shoal run`",
    ErrorCode.DEADLINE: "submit it with a later `deadline`, or ask `shoal explain` beforehand when it may start",
    ErrorCode.OVER_LIMIT: "use less, or ask for a higher limit: `shoal settings` shows `jobs.max_disk` and the like",
    ErrorCode.REFUSED: "ask for less of what the cluster has; `shoal nodes` shows that",
    ErrorCode.INPUT: "check `inputs`: the location, and whether the server's machine may read it",
    ErrorCode.OUTPUT: "check `outputs`: whether the program wrote the file, and the place can be written",
    ErrorCode.SECRET: "store it: `shoal secret set NAME`; then submit the job again",
    ErrorCode.LAUNCH: "it was no fault of the job: see the server's log, then submit it again",
    ErrorCode.RANK_LOST: "it was no fault of the job: submit it again; `restart.limits` says how often it is tried",
    ErrorCode.NODE_LOST: "it was no fault of the job: submit it again; `shoal nodes` shows which machines there are",
}
"""What to do about each end that is a failure."""


def show(job: JobDetail, home: Path | None, tail: list[str], kept: str | None) -> None:
    """All about a job; `home` is its server's, where that is known, `tail` the last lines of a failed one, `kept` the
    outputs of another."""
    reason = (job.reason or {}).get("text", "")
    waited_for = (job.wait_cause or {}).get("text", "")
    output.facts(
        {
            "job": job.id,
            "name": job.name,
            "tenant": job.tenant,
            "state": views.state(job),
            "wanted": job.desired.value if job.desired.value != "run" and not job.terminal else None,
            "class": f"{job.priority_class.value}, priority {job.priority}",
            "needs": views.gang(job),
            "memory": views.memory(job),
            **_place(job, home),
            "submitted": output.moment(job.submitted_at),
            "started": output.moment(job.started_at),
            "ended": output.moment(job.ended_at),
            "deadline": output.moment(job.deadline_at),
            "waited": output.duration(views.waited(job)),
            "ran": output.duration(views.ran(job)),
            "progress": views.progress(job),
            "finishes": views.finish(job),
            "waits" if job.state is JobState.QUEUED else "decision": reason.removeprefix(views.WAITS),
            "had waited": waited_for.removeprefix(views.WAITS),
            "retries": ", ".join(f"{count} ({CAUSES[Fault(fault)]})" for fault, count in job.retries.items()),
            "error": f"{job.error_code}, caused by {CAUSES[job.fault]}" if job.error_code and job.fault else None,
            "message": job.message,
            "outputs": kept,
        }
    )
    _attempts(job)
    if job.state is JobState.FAILED:
        _advise(job, tail)


def _place(job: JobDetail, home: Path | None) -> dict[str, str | None]:
    words, folder = unwrapped(job.manifest.get("command") or ())
    entrypoint = job.manifest.get("entrypoint")
    text = shlex.join(words) if words else str(entrypoint or "")
    text = _harmless(text.encode()).replace("\n", "\\n").replace("\r", "\\r")
    whole = text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]} ..."
    own = None if job.run_dir is None else f"{home or 'HOME'}/{job.run_dir}"
    return {"command": whole, "directory": folder or own}


def _attempts(job: JobDetail) -> None:
    if not job.attempts:
        return
    rows = [
        [
            one.number,
            one.outcome.value if one.outcome else "-",
            output.moment(one.created_at),
            output.duration(views.attempt_ran(one)),
            len(one.placement),
            " ".join(sorted({place.node for place in one.placement})) or "-",
            " ".join(device for place in one.placement for device in place.devices) or "-",
            one.message or one.stop_cause,
        ]
        for one in job.attempts
    ]
    print()
    output.put(output.table(["try", "outcome", "began", "ran", "ranks", "node", "devices", "message"], rows))


def explain(found: ExplanationView, failed: JobDetail | None, home: Path | None, tail: list[str]) -> None:
    """Why a job waits; of one that failed, how."""
    print(found.summary)
    for cause in found.causes:
        mark = output.styled("blocks" if cause.blocking else "ok    ", "bold yellow" if cause.blocking else "green")
        mark.append(f"  {cause.cause:<11} {cause.reason.text}", style="default")
        if cause.blocking and cause.change:
            mark.append(f"\n                    to change it: {cause.change}", style="dim")
        output.console().print(mark, soft_wrap=True)
    if any(cause.blocking for cause in found.causes):
        start = output.moment(found.estimated_start) if found.estimated_start is not None else "cannot be said"
        start += f" ({found.estimate})" if found.estimate else ""
        print(f"jobs ahead: {found.ahead}   estimated start: {start}")
        if found.estimated_start is not None:
            print(f"in nine of ten cases: {_between(found)}")
    if failed is not None:
        output.facts(_place(failed, home))
        _advise(failed, tail)


def _between(found: ExplanationView) -> str:
    if found.start_low is None:
        return "cannot be said"
    low = output.moment(found.start_low)
    if found.start_high is None:
        return f"not before {low}; how long it may take cannot be said"
    return f"{low} to {output.moment(found.start_high)}"


def _advise(job: JobDetail, tail: list[str]) -> None:
    if not tail:
        print("\nits log is empty, or gone")
    else:
        rank = _failed_rank(job)
        print(f"\nlast lines of its log{f' (rank {rank})' if job.ranks > 1 else ''}:")
        for line in tail:
            print(f"  {line}")
    print()
    option = f" --rank {_failed_rank(job)}" if job.ranks > 1 else ""
    remedy = REMEDIES[job.error_code] if job.error_code else _SUBMIT_AGAIN
    output.facts({"what to do": remedy, "whole log": f"shoal logs {job.id}{option}" if tail else None})


def last_lines(client: Client, job: JobDetail) -> list[str]:
    """What the rank that failed wrote last, harmless for a terminal; nothing where its log is gone."""
    if job.state is not JobState.FAILED or not job.attempt:
        return []
    try:
        piece = client.log_piece(job.id, rank=_failed_rank(job), tail=_TAIL_LINES)
    except ShoalError:
        return []
    text = _harmless(piece.data)
    # A progress bar writes over its line: what stood there last is what a terminal shows.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip("\n").split("\n")[-_TAIL_LINES:]]
    return [line[:_LONGEST_LINE] for line in lines] if text.strip() else []


def _harmless(data: bytes) -> str:
    return Harmless().feed(data, last=True).decode()


def kept_outputs(client: Client, job: JobDetail) -> str | None:
    """What the server keeps of its outputs; None where its manifest asks for none."""
    if job.state is not JobState.SUCCEEDED or all(one.get("to") for one in job.manifest.get("outputs", ())):
        return None
    found = client.files(job.id, recursive=True, limit=_MOST_FILES)
    files = [one for one in found.files if one.kept and one.kind == "file"]
    if not files:
        return "removed for their age"
    more = "" if found.next is None else "more than "
    count = f"{more}{len(files)} file{'' if len(files) == 1 else 's'}"
    return f"{count}, {output.size(sum(one.size_bytes for one in files))} (`shoal download {job.id}`)"


def _failed_rank(job: JobDetail) -> int:
    ranks: list[dict[str, Any]] = job.attempts[-1].ranks if job.attempts else []
    failed = [one for one in ranks if one.get("exit_code") != 0]
    failed.sort(key=lambda one: (bool(one.get("stopped")), one.get("ended_at") or 0.0, one["rank"]))
    return int(failed[0]["rank"]) if failed else 0
