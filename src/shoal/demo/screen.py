"""The demo's screen: a live table on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.contract.lifecycle import JobState
from shoal.demo.report import JobResult, Report
from shoal.sdk.models import JobView

_MIN_WIDTH = 110
_STYLES = {
    JobState.RUNNING: "green",
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
    JobState.QUEUED: "yellow",
    JobState.CHECKPOINTING: "magenta",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """All jobs at one moment, by name in the order of their submission, and which slots each holds."""

    jobs: Mapping[str, JobView] = field(default_factory=dict)
    slots: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def in_state(self, *states: JobState) -> list[JobView]:
        return [job for job in self.jobs.values() if job.state in states]

    def done(self) -> list[JobView]:
        return [job for job in self.jobs.values() if job.state.terminal]

    def named(self, text: str) -> str:
        """The text with the names of jobs in place of their ids."""
        for name, job in self.jobs.items():
            text = text.replace(job.id, name)
        return text


class Screen:
    """Shows nothing."""

    def heading(self, text: str) -> None:
        """A new act begins."""

    def say(self, text: str) -> None:
        """Tell what happens now, and why."""

    def quote(self, lines: Iterable[str]) -> None:
        """Show what the server said, word for word."""

    def happened(self, lines: Sequence[str], *, notable: bool) -> None:
        """Steps of jobs; the notable ones are shown everywhere, the others only where no table shows them."""

    def show(self, picture: Picture) -> None:
        """The jobs as they are now."""

    def result(self, report: Report) -> None:
        """The end."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


class LineScreen(Screen):
    """Plain lines, for pipes and logs."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _wide_console()
        self._whole = not self._console.is_terminal
        """Whether lines stay whole, however long: a program may read them."""

    def heading(self, text: str) -> None:
        self._console.print(f"\n[bold]{escape(text)}[/bold]")

    def say(self, text: str) -> None:
        self._console.print(Text(text), highlight=False, soft_wrap=self._whole)

    def quote(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(Text(f"   | {line}"), style="cyan", highlight=False, soft_wrap=self._whole)

    def happened(self, lines: Sequence[str], *, notable: bool) -> None:
        for line in lines:
            self._console.print(
                Text(f"-> {line}"), style="" if notable else "dim", highlight=False, soft_wrap=self._whole
            )

    def result(self, report: Report) -> None:
        self._console.print()
        self._console.print(job_table(report.jobs))
        self._console.print()
        for check in report.checks:
            mark = ("ok  ", "green") if check.passed else ("FAIL", "bold red")
            self._console.print(Text.assemble(mark, f" {check.name}: {check.detail}"), soft_wrap=self._whole)
        style = "bold green" if report.passed else "bold red"
        self._console.print(f"\n[{style}]{report.headline()}[/{style}]", highlight=False)


class LiveScreen(LineScreen):
    """A table that follows the jobs, with the story told above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def happened(self, lines: Sequence[str], *, notable: bool) -> None:
        if notable:
            super().happened(lines, notable=True)

    def show(self, picture: Picture) -> None:
        self._live.update(live_table(picture), refresh=True)

    def result(self, report: Report) -> None:
        self.close()
        super().result(report)

    def close(self) -> None:
        self._live.stop()


def _wide_console() -> Console:
    """Wide enough for the tables where the width of the page is unknown."""
    return Console(width=max(_MIN_WIDTH, shutil.get_terminal_size((_MIN_WIDTH, 40)).columns))


def live_table(picture: Picture) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for heading in ("job", "tenant", "class", "state", "slot", "progress", "accuracy", "waits for"):
        table.add_column(heading, no_wrap=heading != "waits for")
    for name, job in picture.jobs.items():
        table.add_row(
            name,
            job.tenant,
            str(job.priority_class),
            Text(f"{job.state}{f' #{job.attempt}' if job.attempt > 1 else ''}", _STYLES.get(job.state, "")),
            " ".join(picture.slots.get(job.id, ())),
            _bar(job),
            _accuracy(job.progress.get("metrics", {}).get("accuracy")),
            Text(picture.named(_why(job)), "dim"),
        )
    return table


def _bar(job: JobView) -> ProgressBar | str:
    step, total = job.progress.get("step"), job.progress.get("total")
    if job.state is JobState.SUCCEEDED:
        step = total = 1
    if not total:
        return f"step {step}" if step else ""
    return ProgressBar(total=float(total), completed=float(step or 0), width=16)


def _why(job: JobView) -> str:
    if job.state is not JobState.QUEUED or not job.reason:
        return ""
    return str(job.reason.get("text", "")).removeprefix("waits: ")


def _accuracy(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def job_table(jobs: Iterable[JobResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("job", "tenant"):
        table.add_column(heading, no_wrap=True)
    for heading in ("attempts", "wait", "run", "accuracy"):
        table.add_column(heading, no_wrap=True, justify="right")
    for heading in ("waited for", "outcome"):
        table.add_column(heading, min_width=18)
    for job in jobs:
        table.add_row(
            job.name, job.tenant, str(job.attempts), f"{job.wait_s:.1f} s", f"{job.run_s:.1f} s",
            _accuracy(job.accuracy), ", ".join(job.waited_for) or "-", story(job),
        )  # fmt: skip
    return table


def story(job: JobResult) -> str:
    """All attempts in a few words: `preempted, then from step 9 succeeded`."""
    parts = []
    for outcome, after in zip(job.outcomes, job.began_after, strict=True):
        parts.append(f"from step {after} {outcome}" if after else outcome)
    return ", then ".join(parts) or job.state.lower()


def make_screen(*, silent: bool) -> Screen:
    """The screen for this run: depends on who looks."""
    if silent:
        return Screen()
    console = Console()
    return LiveScreen(console) if console.is_terminal else LineScreen()
