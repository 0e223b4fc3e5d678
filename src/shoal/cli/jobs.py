"""Jobs: wait, jobs, show, explain, cancel, suspend, resume."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import FAILED, JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS, START
from shoal.cli import arrays, views
from shoal.cli.context import CliContext
from shoal.contract import times
from shoal.contract.lifecycle import JobOrder, JobState
from shoal.core import Conflict, Invalid, NotFound, ShoalError

if TYPE_CHECKING:
    from shoal.sdk import Client
    from shoal.sdk.models import ArrayChange, JobView

_NAMED = 10
"""How many of the jobs that a pattern means are named in a question."""
_PAGE = 1000
_UNFINISHED = tuple(state for state in JobState if not state.terminal)

JobsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB",
        help="Ids, names, or patterns of names (* and ?); - reads ids from stdin.",
        allow_dash=True,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask when a pattern means several jobs.")]
CauseOption = Annotated[str, typer.Option("--because", help="Why, for the record.")]


def register(app: typer.Typer) -> None:
    command(app, "wait", rich_help_panel=JOBS)(wait)
    command(app, "jobs", rich_help_panel=START)(jobs)
    command(app, "show", rich_help_panel=JOBS)(show)
    command(
        app, "explain", rich_help_panel=START, short_help="Why a job waits, a service is not ready, or a job failed"
    )(explain)
    command(app, "cancel", rich_help_panel=JOBS, short_help="End jobs")(cancel)
    command(app, "suspend", rich_help_panel=JOBS)(suspend)
    command(app, "resume", rich_help_panel=JOBS)(resume)


def wait(context: CliContext, job: JobsArgument, tenant: TenantOption = None) -> None:
    """Wait until all of these jobs are over. The exit code is 0 only if all succeeded.

    A pattern also means jobs that are over: the newest of each name."""
    with context.client(patience_s=30.0) as client:
        refs, _ = _meant(client, job, tenant, tuple(JobState))
        ended = [one for ref in refs for one in _ended(client, ref, tenant)]
    failed = [one for one in ended if one.state is not JobState.SUCCEEDED]

    def human() -> None:
        for one in failed:
            print(f"{one.id}  {one.name}: {one.state}" + (f": {one.message}" if one.message else ""))
        print(f"{len(ended) - len(failed)} of {len(ended)} succeeded")

    context.show(ended, human)
    if failed:
        raise typer.Exit(FAILED)


def _ended(client: Client, ref: str, tenant: str | None) -> Iterable[JobView]:
    """A job once it is over, or all tasks of an array."""
    try:
        return [client.wait(ref, tenant=tenant)]
    except (NotFound, Conflict) as error:
        found = arrays.wait(client, ref, tenant)
        if found is None:
            raise error from None
        return found


def _meant(
    client: Client, given: list[str], tenant: str | None, states: Iterable[JobState]
) -> tuple[list[str], list[str]]:
    """The jobs that are meant, and those of them that only a pattern means, if it means several. A line of stdin begins
    with the job, as `submit` prints it. Raises NotFound for a pattern of no job in these states."""
    refs: list[str] = []
    many: list[str] = []
    for ref in given:
        if ref == "-":
            refs += [line.split()[0] for line in sys.stdin if line.strip()]
        elif not any(sign in ref for sign in "*?"):
            refs.append(ref)
        else:
            found = _matching(client, ref, tenant, states)
            refs += found
            many += found if len(found) > 1 else []
    return list(dict.fromkeys(refs)), many


def _matching(client: Client, pattern: str, tenant: str | None, states: Iterable[JobState]) -> list[str]:
    found: list[str] = []
    before = None
    seen = set()
    while True:
        page = client.jobs(name=pattern, tenant=tenant, state=states, limit=_PAGE, before=before)
        for job in page.jobs:  # the newest first
            named = job.tenant, job.name
            if named not in seen or not job.state.terminal:
                found.append(job.id)
            seen.add(named)
        before = page.next
        if before is None:
            break
    if not found:
        of_these = "" if set(states) == set(JobState) else f" that is {' or '.join(state.lower() for state in states)}"
        raise NotFound(f"no job{of_these} has a name like {pattern!r}", where=pattern, hint="see `shoal jobs`")
    return found[::-1]


def jobs(
    context: CliContext,
    tenant: TenantOption = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="Only in this state; may be repeated.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Only of this name; * stands for any text, ? for any character.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The most entries to show.")] = 50,
    before: Annotated[str | None, typer.Option(help="Continue a listing before this job's id.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also replicas of services, jobs of planes.")] = False,
    tasks: Annotated[bool, typer.Option("--tasks", help="Tasks of job arrays, each in its own line.")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="Only those submitted since then: 15m, 2h, 2026-11-22.")
    ] = None,
    sort: Annotated[
        JobOrder, typer.Option(help="The newest, latest or longest first; names and states by the alphabet.")
    ] = JobOrder.SUBMITTED,
) -> None:
    """List jobs, newest first. A job array is one line, unless tasks are asked for: `--tasks`, or a state or name."""
    states = [_state(one) for one in state] if state else None
    oldest = None if since is None else times.since(since)
    with context.client() as client:
        found = client.jobs(
            tenant=tenant, state=states, name=name, since=oldest, sort=sort, limit=limit, before=before,
            owned=everything, fold=not (tasks or states or name or sort is not JobOrder.SUBMITTED),
        )  # fmt: skip

    def human() -> None:
        from shoal.base.console import output

        if not found.jobs and not found.arrays:
            print("no jobs")
            return
        output.put(views.jobs(found.jobs, found.arrays))
        if found.next:
            context.note(f"there are more: the same with --before {found.next}")

    context.show(found, human)


def _state(word: str) -> JobState:
    try:
        return JobState(word.upper())
    except ValueError:
        known = ", ".join(JobState)
        raise Invalid(f"there is no state {word!r}", where="--state", hint=f"known: {known}") from None


def show(context: CliContext, job: JobArgument, tenant: TenantOption = None) -> None:
    """All about one job: where it is and why, its attempts, and of a failed one its last words and what to do."""
    from shoal.cli import details

    with context.client() as client:
        try:
            found = client.job(job, tenant=tenant)
        except (NotFound, Conflict) as error:
            array = arrays.find(client, job, tenant)
            if array is None:
                raise error from None
            context.show(array, lambda: arrays.show(array))
            return
        tail = [] if context.json else details.last_lines(client, found)
        kept = None if context.json else details.kept_outputs(client, found)
    context.show(found, lambda: details.show(found, context.server_home(), tail, kept))


def explain(
    context: CliContext,
    job: Annotated[str, typer.Argument(metavar="JOB|SERVICE", help="A job's id or name, or a service's.")],
    tenant: TenantOption = None,
) -> None:
    """Why a job waits: every cause in order, what would have to change, and when it may start. Or why a service is not
    ready: the gateway's reasons and each replica's."""
    from shoal.base.console.subjects import meant
    from shoal.cli import details

    with context.client() as client:
        subject = meant(client, job, tenant)
        if subject is not None:
            subject.explain(context)
            return
        try:
            found = client.explain(job, tenant=tenant)
        except (NotFound, Conflict) as error:
            array = arrays.find(client, job, tenant)
            if array is None:
                raise error from None
            found = client.explain_array(array.id, tenant=tenant)
        failed = None if found.causes or context.json else client.job(found.job_id, tenant=tenant)
        if failed is not None and failed.state is not JobState.FAILED:
            failed = None
        tail = [] if failed is None else details.last_lines(client, failed)
    context.show(found, lambda: details.explain(found, failed, context.server_home(), tail))


def cancel(
    context: CliContext, job: JobsArgument, tenant: TenantOption = None,
    because: CauseOption = "", yes: YesOption = False,
) -> None:  # fmt: skip
    """End jobs; running ones are asked to stop, and killed when their grace is over."""
    _change(context, "cancel", job, tenant, because, yes)


def suspend(
    context: CliContext, job: JobsArgument, tenant: TenantOption = None,
    because: CauseOption = "", yes: YesOption = False,
) -> None:  # fmt: skip
    """Pause jobs: they checkpoint if they can, and wait for `resume`."""
    _change(context, "suspend", job, tenant, because, yes)


def resume(
    context: CliContext, job: JobsArgument, tenant: TenantOption = None,
    because: CauseOption = "", yes: YesOption = False,
) -> None:  # fmt: skip
    """Put suspended jobs back into the queue."""
    _change(context, "resume", job, tenant, because, yes)


def _change(context: CliContext, verb: str, refs: list[str], tenant: str | None, cause: str, yes: bool) -> None:
    changed: list[JobView | ArrayChange] = []
    refused: list[ShoalError] = []
    with context.client() as client:
        meant, many = _meant(client, refs, tenant, (JobState.SUSPENDED,) if verb == "resume" else _UNFINISHED)
        if many and not yes:
            _confirm(context, verb, many)
        act = {"cancel": client.cancel, "suspend": client.suspend, "resume": client.resume}[verb]
        together = many if verb == "cancel" else []
        try:
            for start in range(0, len(together), _PAGE):
                answer = client.cancel_jobs(together[start : start + _PAGE], cause=cause)
                changed += answer.jobs
                refused += [Conflict(one.what, where=one.where, hint=one.hint) for one in answer.refused]
                if not context.json:
                    _tell(verb, answer.jobs)
            for ref in [ref for ref in meant if ref not in set(together)]:
                try:
                    job = act(ref, tenant=tenant, cause=cause)
                except (NotFound, Conflict) as error:
                    part = arrays.change(client, verb, ref, tenant, cause)
                    if part is None:
                        refused.append(error)  # the others are meant all the same
                        continue
                    changed.append(part)
                    if not context.json:
                        print(f"{part.array.id}  {part.array.name}: {verb} asked of {len(part.changed)} tasks")
                    continue
                changed.append(job)
                if not context.json:
                    _tell(verb, [job])
        finally:
            if context.json and changed:
                context.show(changed[0] if len(meant) == 1 else changed, lambda: None)
    for other in refused[1:]:
        print(f"error: {other}", file=sys.stderr)
    if refused:
        raise refused[0]


def _tell(verb: str, jobs: Iterable[JobView]) -> None:
    for job in jobs:
        wish = "" if job.state.terminal or verb == "resume" else f", {verb} asked for"
        print(f"{job.id}  {job.name}: {job.state}{wish}", flush=True)


def _confirm(context: CliContext, verb: str, jobs: list[str]) -> None:
    """Ask whether all of these jobs are meant. Raises Invalid without a terminal."""
    if context.json or not sys.stdin.isatty():
        raise Invalid(f"the pattern means {len(jobs)} jobs", where="JOB", hint=f"`--yes` to {verb} all of them")
    some = ", ".join(jobs[:_NAMED]) + (", ..." if len(jobs) > _NAMED else "")
    if not typer.confirm(f"{verb} {len(jobs)} jobs ({some})?", err=True):
        raise typer.Exit(FAILED)
