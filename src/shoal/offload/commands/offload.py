"""`shoal offload`: library calls run where they are fastest, without a change of the program."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, JsonFlag, command, guarded
from shoal.base.console.panels import TOOLS
from shoal.core import Capability, Invalid
from shoal.offload import launch
from shoal.offload.profile import CallRecord, read_profiles
from shoal.offload.settings import read_settings
from shoal.offload.summaries import annotated, sentence, summary

if TYPE_CHECKING:
    from shoal.offload.calibration import Calibration
    from shoal.offload.explain import LineDecision
from shoal.base.console.command import TenantOption
from shoal.base.console.output import put, table
from shoal.core import NotFound
from shoal.offload.profile import REASONS
from shoal.offload.summaries import Summary, from_metrics

offload_app = typer.Typer(
    help="Library calls run where they are fastest, without a change of the program: "
    "`shoal offload run analysis.py`, or `import shoal.offload; shoal.offload.install()`.",
    no_args_is_help=True,
)

_OWN_ARGUMENTS = {"allow_interspersed_args": False, "ignore_unknown_options": True}

ProgramArgument = Annotated[list[str], typer.Argument(metavar="PROGRAM...", help="A Python file and its arguments.")]


def register(app: typer.Typer) -> None:
    app.add_typer(
        offload_app, name="offload", rich_help_panel=TOOLS, short_help="Library calls run where they are fastest"
    )


def _check(program: Sequence[str]) -> None:
    if program[0].startswith("-"):
        raise Invalid(f"no such option: {program[0]}", hint="options come before the program; its own come behind it")


@offload_app.command("run", context_settings=_OWN_ARGUMENTS)
def run(program: ProgramArgument) -> None:
    """Run a program with capture on. What it prints and its exit code are its own."""

    def act() -> None:
        _check(program)
        launch.become(program, launch.environment(os.environ))

    guarded(CommandContext(False, None, None), act)


@offload_app.command("profile", context_settings=_OWN_ARGUMENTS)
def profile(
    program: ProgramArgument,
    json: JsonFlag = False,
    listing: Annotated[bool, typer.Option("--listing", help="The source, with seconds and backends by line.")] = False,
) -> None:
    """Run a program and say for each line where its calls ran, for how long, and why; child processes included."""
    context = CommandContext(json, None, None)

    def act() -> None:
        _check(program)
        with tempfile.TemporaryDirectory(prefix="shoal-offload-") as folder:
            environ = launch.environment(os.environ, report=folder)
            code = launch.run(program, environ, quiet=json)
            records, processes = _read(Path(folder))
        told = {
            "exit_code": code,
            "processes": processes,
            "summary": asdict(summary(records)),
            "calls": [{**asdict(each), "why": sentence(each)} for each in records],
        }
        context.show(told, lambda: _show(records, processes, Path(program[0]) if listing else None))
        if code:
            raise typer.Exit(code)

    guarded(context, act)


@offload_app.command("explain", context_settings=_OWN_ARGUMENTS)
def explain(
    where: Annotated[str, typer.Argument(metavar="FILE:LINE", help="A line of a program: analysis.py:41.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENT...", help="Of the program.")] = None,
    json: JsonFlag = False,
) -> None:
    """Run a program, and show for one line what ran together, the costs, the alternatives, and what would change the
    decision."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.offload.explain import Decisions, read_decisions  # numerical libraries

        file = where.rpartition(":")[0]
        Decisions(where)
        with tempfile.TemporaryDirectory(prefix="shoal-offload-") as folder:
            environ = launch.environment(os.environ, report=folder, explain=where)
            code = launch.run([file, *(arguments or ())], environ, quiet=json)
            decisions = read_decisions(Path(folder))
            records, _ = _read(Path(folder))
        line = int(where.rpartition(":")[2])
        path = str(Path(file).resolve())
        calls = [each for each in records if each.line == line and str(Path(each.file).resolve()) == path]
        told = {
            "decisions": [{**asdict(each), "why": each.sentences()} for each in decisions],
            "calls": [{**asdict(each), "why": sentence(each)} for each in calls],
        }
        context.show(told, lambda: _explain(decisions, calls, where))
        if code:
            raise typer.Exit(code)

    guarded(context, act)


def _explain(decisions: Sequence[LineDecision], calls: Sequence[CallRecord], where: str) -> None:
    if not calls:
        print(f"no call of {where} was captured: its arrays are small, or it has none")
    for each in calls:
        print(f"{each.call}: {each.calls} calls, {each.seconds * 1e3:.2f} ms, {each.backend}: {sentence(each)}")
    for one in decisions:
        shape = " x ".join(map(str, one.shape))
        print(
            f"\n{len(one.operations)} operations on {shape} elements, {one.inputs} inputs, {one.outputs} results kept"
        )
        print("  " + ", ".join(f"{call} (line {line})" for line, call in one.operations))
        for text in one.sentences():
            print(f"  {text}")


@offload_app.command("calibrate")
def calibrate(json: JsonFlag = False) -> None:
    """Measure this machine: a few seconds, kept for every program that is run on it."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.offload import calibration

        settings = read_settings(os.environ)
        found = calibration.calibrate(lambda name: context.note(f"  {name}") if not json else None)
        try:
            calibration.write_calibration(settings.folder, found)
        except OSError as error:
            raise Invalid(f"cannot be written: {error.strerror}", where=str(settings.folder)) from None
        context.show(asdict(found), lambda: _show_calibration(found))

    guarded(context, act)


def _show_calibration(found: Calibration) -> None:
    from shoal.offload.calibration import as_rows

    put(
        table(("operation", "ns", "without"), [(n, f"{here:.2f}", f"{there:.2f}") for n, here, there in as_rows(found)])
    )
    print(f"\n{found.machine}: {1e-9 / found.rates.memory_s_per_byte:.1f} GB/s of memory a core, "
          f"{found.rates.thread_s * 1e6:.0f} us to hand work to a thread")  # fmt: skip


@offload_app.command("doctor")
def doctor(json: JsonFlag = False) -> None:
    """What is there to work with, what is missing, and what that costs."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.offload.capabilities import capabilities

        found = capabilities(read_settings(os.environ))
        told = [asdict(each) for each in found]
        context.show(told, lambda: _show_capabilities(found))

    guarded(context, act)


def _show_capabilities(found: Sequence[Capability]) -> None:
    for each in found:
        lost = f": {each.consequence}" if each.consequence else ""
        print(f"{'yes' if each.available else 'no':3}  {each.name}: {each.detail}{lost}")


@offload_app.command("bench")
def bench(
    suite: Annotated[str, typer.Option("--suite", help="oa, extra, or both: oa,extra.")] = "oa",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Runs of each side, in turns.")] = 7,
    small: Annotated[bool, typer.Option("--small", help="Small inputs, where nothing can be gained.")] = False,
    only: Annotated[str, typer.Option("--only", help="One workload by name.")] = "",
    json: JsonFlag = False,
) -> None:
    """Measure the papers' programs against the plain library, in turns with it."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.offload.bench import geometric_mean, measure, workloads_of
        from shoal.offload.workloads import WORKLOADS

        suites = suite.split(",")
        names = [only] if only else workloads_of(suites)
        if not names or any(name not in WORKLOADS for name in names) or not set(suites) <= {"oa", "extra"}:
            raise Invalid("there is no such suite or workload", hint=f"suites oa, extra; {', '.join(WORKLOADS)}")
        found = []
        for name in names:
            found.append(measure(name, WORKLOADS[name].sizes[0 if small else 1], rounds))
            if not json:
                one = found[-1]
                verdict = "equal" if one.equal else "DIFFERENT"
                print(f"{one.workload:16} {one.size:>9}  {one.plain_s * 1e3:9.2f} ms  {one.captured_s * 1e3:9.2f} ms  "
                      f"{one.speedup:5.2f} x  first {one.first_speedup:5.2f} x  processor {one.cpu_speedup:5.2f} x  "
                      f"{verdict}  load {one.load:.1f}",
                      flush=True)  # fmt: skip
        mean = geometric_mean([each.speedup for each in found])
        told = {"workloads": [{**asdict(each), "speedup": each.speedup} for each in found], "geometric_mean": mean}
        context.show(told, lambda: print(f"geometric mean {mean:.2f} x"))

    guarded(context, act)


def _read(folder: Path) -> tuple[list[CallRecord], int]:
    try:
        return read_profiles(folder)
    except (OSError, ValueError) as error:
        raise Invalid(f"the profile cannot be read: {error}", where=str(folder)) from error


def _show(records: Sequence[CallRecord], processes: int, source: Path | None) -> None:

    if not records:
        print("no call was captured: the program has no array, frame or estimator that is large enough")
        return
    if source is not None:
        print("\n".join(annotated(source.resolve(), records)))
        print()
    rows = [
        (f"{Path(each.file).name}:{each.line}", each.call, each.calls, f"{each.seconds * 1e3:.2f} ms", each.backend,
         f"{each.bytes / 2**20:.1f}", sentence(each))
        for each in records
    ]  # fmt: skip
    put(table(("line", "call", "calls", "time", "backend", "MiB", "why"), rows))
    found = summary(records)
    parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in sorted(found.seconds.items()))
    print(f"\n{sum(found.calls.values())} calls in {processes} process{'es' if processes != 1 else ''}: {parts}")


@command(offload_app, "report")
def report(
    context: CommandContext,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its name or id.")],
    tenant: TenantOption = None,
) -> None:
    """Where the captured calls of a job ran, what that saved, and why others stayed with the plain library.

    A running job tells it every ten seconds, and each job when its program ends."""
    with context.client() as client:
        seen = client.job(job, tenant=tenant)
    found = from_metrics(seen.progress.get("metrics", {}))
    if found is None:
        raise NotFound(
            f"{seen.name} has told of no captured call",
            where=seen.id,
            hint="its manifest needs `extensions: {offload: {enabled: true}}`, and arrays that are large enough",
        )
    context.show({"job": seen.id, **asdict(found), "share": _shares(found)}, lambda: _show_shares(found))


def _shares(found: Summary) -> dict[str, float]:
    """Of the time, by backend."""
    whole = sum(found.seconds.values()) or 1.0
    return {name: seconds / whole for name, seconds in found.seconds.items()}


def _show_shares(found: Summary) -> None:
    shares = _shares(found)
    rows = [
        (name, found.calls[name], f"{found.seconds[name]:.2f} s", f"{shares[name]:.0%}") for name in sorted(found.calls)
    ]
    put(table(("backend", "calls", "time", "share"), rows))
    print(f"\nabout {abs(found.saved):.2f} s {'less' if found.saved >= 0 else 'more'} than with the plain library")
    if found.stayed:
        print("\ncalls that stayed with it:")
        for reason, count in sorted(found.stayed.items(), key=lambda each: -each[1]):
            print(f"{count:8}  {REASONS[reason]}")
