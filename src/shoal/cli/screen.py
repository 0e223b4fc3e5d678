"""`shoal top` on a terminal: the views of the web page, by mouse and keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.css.query import NoMatches
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, DataTable, Footer, Input, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from shoal.base.console import output
from shoal.cli import views
from shoal.contract.lifecycle import ACTIVE, JobState
from shoal.core import ShoalError
from shoal.sdk import Client
from shoal.sdk.models import EventView, JobView, NodeView, TenantView

MOST_JOBS, MOST_EVENTS, LOG_LINES = 500, 200, 200
_LIVE = (*sorted(ACTIVE), JobState.QUEUED, JobState.SUSPENDED)
_STEPS = {
    "cancel": "It is asked to end: its processes get a signal, their grace time, and are then killed. "
    "It cannot be resumed. Its log and kept files stay.",
    "suspend": "It may write a checkpoint, gives back what it holds, and waits until it is resumed.",
    "resume": "It waits in the queue again, and starts from its last checkpoint.",
}


@dataclass(frozen=True)
class Sight:
    """What the views show, as of one moment."""

    jobs: Sequence[JobView] = ()
    services: Sequence[Any] = ()
    nodes: Sequence[NodeView] = ()
    tenants: Sequence[TenantView] = ()
    events: Sequence[EventView] = field(default=())


def look(client: Client) -> Sight:
    """Raises ShoalError."""
    newest = client.event_page(limit=0).next
    return Sight(
        client.jobs(state=_LIVE, limit=MOST_JOBS, owned=True).jobs,
        client.services.list().services,
        client.nodes(),
        client.tenants(),
        client.event_page(after=max(0, newest - MOST_EVENTS), limit=MOST_EVENTS).events,
    )


def plain(text: str | None) -> Text:
    """A text of others: nothing in it moves the cursor or is read as markup."""
    return Text("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text or ""))


# --- rows of the views, each with the key that names it ---

Rows = list[tuple[str, list[Text]]]


def job_rows(sight: Sight, wanted: str) -> Rows:
    order = {state: place for place, state in enumerate(_LIVE)}
    found = [one for one in sight.jobs if wanted in f"{one.id} {one.name} {one.tenant} {one.state}".lower()]
    found.sort(key=lambda job: (order[job.state], job.submitted_at))
    return [
        (job.id, [
            plain(job.name), Text(job.state.value, views.STATE_STYLES.get(job.state) or ""), plain(job.tenant),
            plain(views.gang(job)), Text(output.duration(views.waited(job))), Text(output.duration(views.ran(job))),
            plain(views.why(job) if job.state is JobState.QUEUED else views.progress(job)),
        ])
        for job in found
    ]  # fmt: skip


def service_rows(sight: Sight, wanted: str) -> Rows:
    rows: Rows = []
    for one in sight.services:
        if wanted not in f"{one.name} {one.tenant}".lower():
            continue
        p99, goal = (one.traffic.p99_s if one.traffic is not None else None), one.slo_p99_s
        missed = p99 is not None and goal is not None and p99 > goal
        rows.append((one.id, [
            plain(one.name), Text(one.state), plain(one.tenant), Text(f"{one.ready} of {one.replicas}"),
            Text(_ms(p99), "red" if missed else ""), Text(_ms(goal)),
            Text(f"{one.traffic.rate_per_s:.3g}/s" if one.traffic is not None else "-"),
            Text(str(one.traffic.rejected) if one.traffic is not None else "-"),
        ]))  # fmt: skip
    return rows


def node_rows(sight: Sight, wanted: str) -> Rows:
    rows: Rows = []
    for node in sight.nodes:
        if wanted in node.name.lower():
            busy = sum(not device.free for device in node.devices)
            rows.append((node.name, [
                plain(node.name), Text("open" if node.schedulable else "drained", "" if node.schedulable else "yellow"),
                Text(f"{busy} of {len(node.devices)}"), views.squares(node),
                Text(f"{(node.cpu_milli - node.free_cpu_milli) / 1000:.3g} of {node.cpu_milli / 1000:.3g}"),
                Text(f"{output.size(node.memory_bytes - node.free_memory_bytes)} of {output.size(node.memory_bytes)}"),
            ]))  # fmt: skip
    return rows


def tenant_rows(sight: Sight, wanted: str) -> Rows:
    held = {one.name: sum(one.used.accelerators.values()) for one in sight.tenants}
    present = {one.name: one.weight for one in sight.tenants if held[one.name] or one.jobs.get("QUEUED", 0)}
    whole, weights = sum(held.values()), sum(present.values())
    return [
        (one.name, [
            plain(one.name), Text(f"{one.weight:g}"), Text(f"{held[one.name] / whole:.0%}" if whole else "-"),
            Text(f"{one.weight / weights:.0%}" if one.name in present else "-"), Text(str(one.running_jobs)),
            Text(str(one.jobs.get("QUEUED", 0))), plain(output.needs(one.used)),
        ])
        for one in sight.tenants if wanted in one.name.lower()
    ]  # fmt: skip


def event_rows(sight: Sight, wanted: str) -> Rows:
    return [
        (str(one.seq), [
            Text(output.moment(one.at)), plain(one.new_state or one.kind), plain(one.job_id or one.owner_id or "-"),
            plain(one.cause), plain(one.actor), plain(one.tenant or "-"),
        ])
        for one in reversed(sight.events)
        if wanted in f"{one.kind} {one.cause} {one.actor} {one.tenant} {one.job_id} {one.new_state}".lower()
    ]  # fmt: skip


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3g} ms"


VIEWS: dict[str, tuple[tuple[str, ...], Callable[[Sight, str], Rows]]] = {
    "jobs": (("name", "state", "tenant", "needs", "waited", "ran", "how it is"), job_rows),
    "services": (("name", "state", "tenant", "ready", "p99", "objective", "rate", "refused"), service_rows),
    "nodes": (("node", "state", "busy", "devices", "cpu", "memory"), node_rows),
    "tenants": (("tenant", "weight", "share", "due", "running", "queued", "holds"), tenant_rows),
    "events": (("at", "what", "of", "why", "by", "tenant"), event_rows),
}


class TopApp(App[None]):
    """`client` is used by threads of its own, one request at a time in each. `every_s`: how often it looks at least."""

    TITLE = "shoal top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; padding: 0 1; background: $panel; }
    #filter { display: none; }
    #filter.open { display: block; }
    Question { align: center middle; }
    Question > Vertical { width: 64; height: auto; padding: 1 2; border: round $primary; background: $surface; }
    Question Horizontal { height: auto; margin-top: 1; }
    Question Button { margin-right: 2; }
    JobScreen #facts, JobScreen #why { height: auto; padding: 0 1; margin-bottom: 1; }
    JobScreen #log { padding: 0 1; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(place), f"view('{name}')", name.capitalize()) for place, name in enumerate(VIEWS, 1)),
        Binding("slash", "filter", "Filter"), Binding("escape", "clear", "Clear", show=False),
        Binding("c", "ask('cancel')", "Cancel"), Binding("s", "ask('suspend')", "Suspend"),
        Binding("r", "ask('resume')", "Resume"), Binding("q", "quit", "Leave"),
    ]  # fmt: skip

    def __init__(self, client: Client, every_s: float = 1.0) -> None:
        super().__init__()
        self._client = client
        self._every_s = every_s
        self._sight = Sight()
        self._stale = ""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Input(placeholder="a part of a name, a tenant, a state", id="filter")
        with TabbedContent(id="views"):
            for name in VIEWS:
                with TabPane(name.capitalize(), id=name):
                    yield DataTable(id=f"table-{name}", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        for name, (columns, _) in VIEWS.items():
            self._table(name).add_columns(*columns)
        self._table("jobs").focus()
        self._follow()

    def _table(self, name: str) -> DataTable[Text]:
        return self.query_one(f"#table-{name}", DataTable)

    # --- what is seen ---

    @work(thread=True)
    def _follow(self) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled:
            try:
                sight, stale = look(self._client), ""
            except ShoalError as error:
                sight, stale = self._sight, f"  not up to date: {error}"
            if not worker.is_cancelled:
                self.call_from_thread(_while_there, self._show, sight, stale)
            time.sleep(self._every_s)

    def _show(self, sight: Sight, stale: str) -> None:
        self._sight, self._stale = sight, stale
        running = sum(job.state.active for job in sight.jobs)
        waiting = sum(job.state is JobState.QUEUED for job in sight.jobs)
        devices = [device for node in sight.nodes for device in node.devices]
        busy = sum(not device.free for device in devices)
        head = Text(f"{running} running, {waiting} waiting, {busy}/{len(devices)} devices busy", "bold")
        self.query_one("#head", Static).update(head.append_text(Text(plain(stale).plain, "red")))
        self._draw()

    def _draw(self) -> None:
        wanted = self.query_one("#filter", Input).value.strip().lower()
        for name, (_, rows_of) in VIEWS.items():
            _fill(self._table(name), rows_of(self._sight, wanted))

    # --- what is done ---

    def action_view(self, name: str) -> None:
        self.query_one("#views", TabbedContent).active = name
        self._table(name).focus()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("open")
        field.focus()

    def action_clear(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("open")
        self._back()

    @on(Input.Submitted, "#filter")
    def _back(self) -> None:
        self._table(self.query_one("#views", TabbedContent).active).focus()

    @on(Input.Changed, "#filter")
    def _typed(self) -> None:
        self._draw()

    def _chosen(self) -> JobView | None:
        """The job under the cursor."""
        table = self._table("jobs")
        if self.query_one("#views", TabbedContent).active != "jobs" or not table.row_count:
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return next((job for job in self._sight.jobs if job.id == key), None)

    @on(DataTable.RowSelected, "#table-jobs")
    def _open(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self.push_screen(JobScreen(self._client, event.row_key.value, self._every_s))

    def action_ask(self, step: str) -> None:
        job = self.screen.job if isinstance(self.screen, JobScreen) else self._chosen()
        if job is not None:
            title = f"{step.capitalize()} {job.name}?"

            def answered(yes: bool | None) -> None:
                if yes:
                    self._act(step, job.id)

            self.push_screen(Question(title, _STEPS[step], step), answered)

    @work(thread=True)
    def _act(self, step: str, job_id: str) -> None:
        try:
            steps = {"cancel": self._client.cancel, "suspend": self._client.suspend, "resume": self._client.resume}
            steps[step](job_id)
        except ShoalError as error:
            self.call_from_thread(self.notify, plain(str(error)).plain, severity="error", markup=False)


def _while_there(show: Callable[..., None], *what: Any) -> None:
    """An answer may come while its screen goes, part by part."""
    with suppress(NoMatches):
        show(*what)


def _fill(table: DataTable[Text], rows: Rows) -> None:
    """The cursor stays on its row, wherever that is now."""
    at = table.cursor_row
    key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None
    scroll = table.scroll_y
    table.clear()
    for name, cells in rows:
        table.add_row(*cells, key=name)
    names = [name for name, _ in rows]
    table.move_cursor(row=names.index(key) if key in names else min(at, max(0, len(rows) - 1)), scroll=False)
    table.scroll_to(y=scroll, animate=False)


class JobScreen(Screen[None]):
    """One job: how it is, why it waits, and the end of its log."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,backspace", "app.pop_screen", "Back")]

    def __init__(self, client: Client, job_id: str, every_s: float) -> None:
        super().__init__()
        self._client, self._job_id, self._every_s = client, job_id, every_s
        self.job: JobView | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="facts")
        yield Static(id="why")
        with VerticalScroll(id="log"):
            yield Static(id="lines")
        yield Footer()

    def on_mount(self) -> None:
        self._follow()

    @work(thread=True)
    def _follow(self) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled:
            try:
                job = self._client.job(self._job_id)
                why = self._client.explain(self._job_id) if job.state is JobState.QUEUED else None
                log = self._client.log_piece(self._job_id, tail=LOG_LINES).text if job.attempt else ""
            except ShoalError as error:
                found = Text(plain(str(error)).plain, "red")
                if not worker.is_cancelled:
                    self.app.call_from_thread(_while_there, self._set, "#facts", found)
            else:
                if not worker.is_cancelled:
                    self.app.call_from_thread(_while_there, self._show, job, why, log)
            time.sleep(self._every_s)

    def _set(self, name: str, text: Text) -> None:
        self.query_one(name, Static).update(text)

    def _show(self, job: JobView, why: Any, log: str) -> None:
        self.job = job
        facts = Text.assemble(
            (plain(job.name).plain, "bold"), "  ", (job.state.value, views.STATE_STYLES.get(job.state) or ""),
            f"  {job.id}  tenant {job.tenant}  needs {views.gang(job)}  waited {output.duration(views.waited(job))}",
            f"  ran {output.duration(views.ran(job))}  {views.progress(job)}",
        )  # fmt: skip
        self._set("#facts", facts)
        causes = Text()
        if why is not None:
            causes.append("Why it waits\n", "bold")
            for one in why.causes:
                if one.blocking:
                    causes.append(f"  {plain(one.reason.text).plain}\n")
                    causes.append(f"    could start if: {plain(one.change).plain}\n" if one.change else "", "dim")
        elif job.state is JobState.FAILED:
            causes = Text(plain(views.why(job)).plain, "red")
        self._set("#why", causes)
        box = self.query_one("#log", VerticalScroll)
        follows = box.scroll_y >= box.max_scroll_y
        self._set("#lines", _log(log))
        if follows:
            box.scroll_end(animate=False)


def _log(text: str) -> Text:
    """A terminal's output: its colours stay, all else that is no text goes."""
    lines = [Text.from_ansi(line.rpartition("\r")[2]) for line in text.replace("\r\n", "\n").splitlines()]
    for line in lines:
        line.plain = plain(line.plain).plain
    return Text("\n").join(lines)


class Question(ModalScreen[bool]):
    """Asks before something is done, and says what will happen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"), Binding("n,escape", "answer(False)", "No"),
    ]  # fmt: skip

    def __init__(self, title: str, text: str, step: str) -> None:
        super().__init__()
        self._title, self._text, self._step = title, text, step

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(plain(self._title).plain, "bold"))
            yield Static(Text(self._text))
            with Horizontal():
                yield Button("Back (n)", id="no")
                yield Button(f"{self._step.capitalize()} it (y)", id="yes", variant="warning")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
