"""Draws the pictures of these pages: `python docs/tools/pictures.py` writes docs/pictures/*.svg.

They lie on no background, with colours that read on light and on dark. Change them here, look at the
result, commit both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "pictures"

LINE = "#7b8a9c"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
SIZE = 13
WIDTH_OF_A_LETTER = 7.2
"""At 13 pixels, with some reserve: `Box` refuses text that would not fit."""

COLOURS = {  # fill, border, text
    "blue": ("#dbeafe", "#3b82f6", "#1e3a8a"),
    "green": ("#dcfce7", "#16a34a", "#14532d"),
    "red": ("#fee2e2", "#dc2626", "#7f1d1d"),
    "amber": ("#fef3c7", "#d97706", "#78350f"),
    "violet": ("#ede9fe", "#7c3aed", "#4c1d95"),
    "grey": ("#e5e7eb", "#6b7280", "#1f2937"),
}


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    w: float
    h: float

    def side(self, which: str, at: float = 0.5) -> tuple[float, float]:
        """A point on the left, right, top or bottom side, `at` of its length."""
        return {
            "l": (self.x, self.y + at * self.h), "r": (self.x + self.w, self.y + at * self.h),
            "t": (self.x + at * self.w, self.y), "b": (self.x + at * self.w, self.y + self.h),
        }[which]  # fmt: skip


class Picture:
    """SVG by parts; every method adds one."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, text: str, colour: str = "blue") -> Box:
        """A box with centred lines of text, the first one bold."""
        lines = text.split("\n")
        widest = max(len(line) for line in lines) * WIDTH_OF_A_LETTER
        if widest > w or len(lines) * 17 > h:
            raise ValueError(f"{text!r} needs {widest:.0f} x {len(lines) * 17}, the box has {w} x {h}")
        fill, border, ink = COLOURS[colour]
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="7" fill="{fill}" stroke="{border}" '
            'stroke-width="1.4"/>'
        )
        top = y + h / 2 - (len(lines) - 1) * 8.5 + 4.5
        for number, line in enumerate(lines):
            weight = ' font-weight="600"' if number == 0 else ""
            self._write(x + w / 2, top + 17 * number, line, ink, "middle", weight, SIZE if number == 0 else 12)
        return Box(x, y, w, h)

    def frame(self, x: float, y: float, w: float, h: float, text: str) -> None:
        """A dashed frame around other parts, its name at the top left."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="9" fill="none" stroke="{LINE}" '
            'stroke-dasharray="5 4"/>'
        )
        self.text(x + 12, y + 20, text, "start", bold=True)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", *, bold: bool = False) -> None:
        for number, line in enumerate(text.split("\n")):
            self._write(x, y + 16 * number, line, LINE, anchor, ' font-weight="600"' if bold else "", 12.5)

    def _write(self, x: float, y: float, line: str, ink: str, anchor: str, more: str, size: float) -> None:
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{ink}" text-anchor="{anchor}" font-size="{size}"{more}>'
            f"{escape(line)}</text>"
        )

    def line(self, *points: tuple[float, float], dashed: bool = False, head: bool = True) -> None:
        """A broken line with rounded corners, and an arrow's head at its end."""
        path = f"M{points[0][0]:g} {points[0][1]:g}"
        for before, here, after in zip(points, points[1:], points[2:], strict=False):
            path += _corner(before, here, after)
        path += f" L{points[-1][0]:g} {points[-1][1]:g}"
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        mark = ' marker-end="url(#head)"' if head else ""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.6"{dash}{mark}/>')

    def svg(self) -> str:
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="{FONT}" role="img"><title>{escape(self._title)}</title>\n'
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker></defs>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"


def _corner(before: tuple[float, float], here: tuple[float, float], after: tuple[float, float]) -> str:
    def towards(other: tuple[float, float]) -> tuple[float, float]:
        length = math.dist(here, other) or 1.0
        part = min(8.0, length / 2) / length
        return here[0] + (other[0] - here[0]) * part, here[1] + (other[1] - here[1]) * part

    (ax, ay), (bx, by) = towards(before), towards(after)
    return f" L{ax:g} {ay:g} Q{here[0]:g} {here[1]:g} {bx:g} {by:g}"


# --- the pictures ---


def architecture() -> Picture:
    p = Picture(880, 508, "What Shoal is made of: each part knows only those below it")
    p.box(20, 15, 840, 44, "shoal (command line) · demo · Python client", "blue")
    p.box(
        20,
        80,
        840,
        62,
        "control: the server\nkeeps, starts, drives and explains every job and service; REST API",
        "violet",
    )
    names = [
        ("tenancy", "planes, sandboxes"), ("schedule", "who gets what"), ("serve", "models on time"),
        ("device", "one device, shared"), ("host", "memory bandwidth"), ("measure", "load, capacity"),
        ("market", "what to rent"), ("forecast", "how fast, how long"), ("cache", "fast storage, fairly"),
        ("cascade", "features of a prediction"), ("recurrent", "RNN kernels, sessions"), ("offload", "library calls"),
        ("shell", "commands near data"),
    ]  # fmt: skip
    for number, (name, about) in enumerate(names):
        p.box(20 + 213 * (number % 4), 176 + 44 * (number // 4), 201, 40, f"{name}\n{about}", "green")
    p.text(440, 164, "components: each is useful alone; they join the server as extensions")
    p.box(20, 360, 410, 58, "engine · placement\nlocal, slurm, ray, kubernetes · where steps run", "amber")
    below = "admission · store · inference · contract\nwho starts now · the log · models, runtimes · manifests"
    p.box(450, 360, 410, 58, below, "amber")
    p.box(20, 440, 840, 50, "core · base\nthe vocabulary · files, processes, HTTP", "grey")
    return p


def job() -> Picture:
    p = Picture(880, 328, "The life of a job")
    names = ["QUEUED", "ADMITTED", "PLACED", "STARTING", "RUNNING", "STORING", "SUCCEEDED"]
    about = ["waits", "may start", "has devices", "fetches inputs", "trains", "outputs", "it is over"]
    colours = ["amber", "blue", "blue", "blue", "green", "blue", "grey"]
    boxes = []
    for number, (name, text, colour) in enumerate(zip(names, about, colours, strict=True)):
        boxes.append(p.box(10 + 124 * number, 110, 104, 54, f"{name}\n{text}", colour))
    for left, right in pairwise(boxes):
        p.line(left.side("r"), right.side("l"))
    queued, running = boxes[0], boxes[4]
    checkpointing = p.box(490, 232, 136, 54, "CHECKPOINTING\nasked to stop", "violet")
    p.line(running.side("b", 0.5), (558, 198), checkpointing.side("t", 0.5))
    p.line(checkpointing.side("l"), (62, 259), queued.side("b"))
    p.text(275, 250, "preempted: its checkpoint is kept, it resumes later")
    p.line(running.side("t", 0.3), (537.2, 60), (62, 60), queued.side("t"))
    p.text(300, 50, "failed with a retry left, or lost: tried again after a wait")
    failed = p.box(666, 20, 100, 44, "FAILED", "red")
    p.line(running.side("t", 0.75), (584, 42), failed.side("l"))
    suspended = p.box(666, 232, 92, 54, "SUSPENDED\non request", "grey")
    cancelled = p.box(770, 232, 100, 54, "CANCELLED\non request", "grey")
    p.line(checkpointing.side("r"), suspended.side("l"))
    p.line(checkpointing.side("b", 0.8), (598.8, 312), (820, 312), cancelled.side("b"))
    p.text(870, 208, "shoal suspend, shoal cancel: at any time", "end")
    p.text(10, 318, "Every step is one event, written together with the row that it changes.", "start")
    return p


def engine() -> Picture:
    p = Picture(880, 290, "A gang on one machine: what outlives the server")
    control = p.box(10, 60, 160, 76, "control plane\nlaunch, stop, adopt\nby the gang's name", "violet")
    mine = p.box(220, 60, 120, 76, "engine\nin the server", "blue")
    p.line(control.side("r"), mine.side("l"))
    p.frame(390, 8, 480, 274, "outlives the server")
    supervisors = [p.box(420, y, 180, 48, f"supervisor of rank {rank}", "green") for rank, y in enumerate((44, 124))]
    ranks = [p.box(680, y, 160, 48, f"rank {rank}\nin its own cgroup", "grey") for rank, y in enumerate((44, 124))]
    for supervisor, rank in zip(supervisors, ranks, strict=True):
        p.line(supervisor.side("r"), rank.side("l"))
        p.line((365, 98), (365, supervisor.y + 24), supervisor.side("l"))
    p.line(mine.side("r"), (365, 98), head=False)
    p.text(510, 112, "all ranks start, or none does")
    records = p.box(
        420, 216, 420, 50, "records on disk\nwhat the gang is, who decided `go`, how each rank ended", "amber"
    )
    p.line(supervisors[1].side("b"), (510, 216))
    p.line(records.side("l"), (280, 241), mine.side("b"), dashed=True)
    p.text(152, 236, "the next server reads them\nand adopts what runs")
    return p


def request() -> Picture:
    p = Picture(880, 350, "The path of a request for inference")
    client = p.box(10, 120, 92, 60, "client\nV2 protocol", "grey")
    p.frame(134, 66, 510, 250, "gateway: one process")
    token = p.box(150, 110, 128, 80, "directory\ntoken, model,\nversion (canary)", "blue")
    limit = p.box(318, 110, 118, 80, "rate limit\ncompute-seconds\nper second", "blue")
    scheduler = p.box(476, 100, 152, 100, "scheduler\nclass, shares,\ndeadline, batch:\nnow, wait, or no", "violet")
    replica = p.box(720, 44, 150, 60, "replica 1\nONNX Runtime", "green")
    other = p.box(720, 196, 150, 60, "replica 2\nskops, torch, yours", "green")
    p.line(client.side("r"), token.side("l"))
    p.line(token.side("r"), limit.side("l"))
    p.line(limit.side("r"), scheduler.side("l"))
    p.line(scheduler.side("r", 0.3), (674, 130), (674, 74), replica.side("l"))
    p.line(scheduler.side("r", 0.7), (674, 170), (674, 226), other.side("l"))
    p.text(795, 134, "tensors are written once,\ninto shared memory")
    no_token = p.box(150, 236, 128, 44, "401, 403, 404\nnot yours", "red")
    over = p.box(318, 236, 118, 44, "429\nover its limit", "red")
    late = p.box(476, 236, 152, 44, "503\nwould be late", "red")
    p.line(token.side("b"), no_token.side("t"))
    p.line(limit.side("b"), over.side("t"))
    p.line(scheduler.side("b"), late.side("t"))
    p.text(389, 302, "a refusal costs nothing and says when to ask again")
    p.line(replica.side("t"), (795, 34), (56, 34), client.side("t"))
    p.text(400, 26, "answer, with Server-Timing: queue and compute")
    p.text(
        440,
        335,
        "A replica that dies fails the requests it was sent (502). A new one starts; what waits is answered by it.",
    )
    return p


def round_() -> Picture:
    p = Picture(880, 365, "A round: from what is known to who runs where")
    known = p.box(10, 40, 168, 76, "known\nthroughputs, prices,\nweights, quotas", "grey")
    policy = p.box(222, 40, 168, 76, "policy (pure)\nshare of time of each\njob on each type", "violet")
    pick = p.box(434, 40, 200, 76, "round\nthe largest deficit goes\nfirst; gangs start whole", "blue")
    act = p.box(678, 40, 192, 76, "act\nkeep, start, or ask to\ncheckpoint and leave", "green")
    p.line(known.side("r"), policy.side("l"))
    p.line(policy.side("r"), pick.side("l"))
    p.line(pick.side("r"), act.side("l"))
    p.line(act.side("b"), (774, 150), (94, 150), known.side("b"))
    p.text(434, 142, "steps that jobs report; time that each received")
    p.text(10, 196, "a100", "start", bold=True)
    p.text(10, 242, "k80", "start", bold=True)
    rows = {
        172: [
            ("resnet", "blue", 2),
            ("lm", "amber", 1),
            ("resnet", "blue", 1),
            ("lm", "amber", 1),
            ("resnet", "blue", 1),
        ],
        218: [
            ("a3c", "green", 1),
            ("gan", "violet", 2),
            ("a3c", "green", 1),
            ("gan", "violet", 1),
            ("a3c", "green", 1),
        ],
    }
    for number in range(7):
        p.line((67 + 130 * number, 168), (67 + 130 * number, 268), dashed=True, head=False)
        if number < 6:
            p.text(132 + 130 * number, 284, f"round {number + 1}")
    for y, row in rows.items():
        x = 70.0
        for name, colour, rounds in row:
            p.box(x, y, 130 * rounds - 6, 36, name, colour)
            x += 130 * rounds
    p.text(
        440, 318,
        "Over time each job gets the share that the policy gave it. A job that keeps its place pays nothing;\n"
        "one that leaves saves a checkpoint first. A job that saves nothing keeps its place for longer turns.\n"
        "In between, a place that becomes free is given out at once, in the same order.",
    )  # fmt: skip
    return p


def guard() -> Picture:
    p = Picture(880, 400, "The feedback loop of the guard")
    work = p.box(20, 140, 190, 110, "workloads\nguaranteed: steps told\nin a ring file\nbest-effort: unchanged", "grey")
    sense = p.box(250, 24, 190, 84, "sense (each 100 ms)\nstep times, latency,\nbandwidth, CPU time", "blue")
    decide = p.box(490, 24, 180, 84, "decide (pure)\nwho disturbs, and how\nmuch each may do", "violet")
    act = p.box(490, 282, 180, 84, "act\nCPU sets, pacing,\nquota, RDT, freeze", "green")
    read = p.box(250, 282, 190, 84, "read back\nis each limit\nreally in force?", "blue")
    p.line(work.side("t"), (115, 66), sense.side("l"))
    p.line(sense.side("r"), decide.side("l"))
    p.line(decide.side("b"), act.side("t"))
    p.line(act.side("l"), read.side("r"))
    p.line(read.side("l"), (115, 324), work.side("b"))
    p.text(352, 190, "slower than promised: tighten\nroom left: loosen, in small steps")
    p.text(600, 200, "a plan\nwith reasons", "start")
    journal = p.box(720, 36, 150, 60, "journal\nreplays exactly", "amber")
    p.line(decide.side("r"), journal.side("l"))
    undo = p.box(720, 276, 150, 96, "write-ahead log\nand watchdog: all\nlimits end with\nthe guard", "amber")
    p.line(act.side("r"), undo.side("l"))
    return p


def deaths() -> Picture:
    p = Picture(880, 470, "What happens when what dies")
    p.text(150, 22, "dies", bold=True)
    p.text(580, 22, "what follows", bold=True)
    rows = [
        ("server", "amber", "jobs and services run on; the next server adopts them", "their ranks never notice"),
        ("supervisor of a rank", "amber", "its rank ends with it; leftovers are killed",
         "the attempt is lost, and tried again"),
        ("a rank", "amber", "its gang ends whole", "tried again by the manifest's limits"),
        ("a replica", "amber", "its requests fail with 502; others wait up to 5 s",
         "started again at once, then with growing waits"),
        ("gateway", "amber", "started again at the same address", "replicas join anew, models still loaded"),
        ("guard", "amber", "all its limits end with it", "jobs run on without it; the server starts another"),
        ("database or its log", "red", "the server refuses to start and says what is lost",
         "shoal restore, or shoal up --accept-data-loss"),
    ]  # fmt: skip
    for number, (what, colour, first, second) in enumerate(rows):
        y = 36 + 61 * number
        left = p.box(20, y, 240, 50, what, colour)
        right = p.box(310, y, 550, 50, f"{first}\n{second}", "red" if colour == "red" else "green")
        p.line(left.side("r"), right.side("l"))
    return p


def forecast() -> Picture:
    p = Picture(880, 218, "Forecasts: from measurements to intervals")
    measured = p.box(10, 40, 190, 76, "measurements\nstep times, checkpoints,\nlives of servers", "grey")
    fit = p.box(240, 40, 190, 76, "fit\nfor each model left out:\nhow wrong are the others?", "violet")
    kept = p.box(470, 40, 170, 76, "model\nversioned JSON", "blue")
    found = p.box(680, 40, 190, 76, "estimate\nmedian, interval,\nand its source", "green")
    steps = p.box(10, 142, 190, 56, "a running job\nreports its steps", "amber")
    end = p.box(680, 142, 190, 56, "finish time\nin `shoal explain`", "green")
    p.line(measured.side("r"), fit.side("l"))
    p.line(fit.side("r"), kept.side("l"))
    p.line(kept.side("r"), found.side("l"))
    p.line(steps.side("r"), end.side("l"))
    p.text(440, 160, "its own measurement needs no model")
    return p


def market() -> Picture:
    p = Picture(880, 216, "A decision on a market: from what was seen to what is rented")
    feeds = p.box(10, 20, 172, 76, "feeds\nprices, availability,\nby offer and time", "grey")
    others = p.box(10, 124, 172, 76, "other zones\nhow long capacity\nstays, by age", "grey")
    view = p.box(214, 20, 172, 76, "view\nwork, time, what\nruns, prices now", "blue")
    plan = p.box(214, 124, 172, 76, "plan\nexpected cost of each\nstate to the end", "violet")
    choice = p.box(424, 66, 146, 84, "policy\nwait, spot or\non demand, and why", "violet")
    net = p.box(602, 66, 140, 84, "safety net\nends in time\nwhatever happens", "amber")
    rent = p.box(774, 66, 96, 84, "held\nfor this tick", "green")
    p.line(feeds.side("r"), view.side("l"))
    p.line(others.side("r"), plan.side("l"))
    p.line(view.side("r"), (405, 58), (405, 92), choice.side("l", 0.31))
    p.line(plan.side("r"), (405, 162), (405, 124), choice.side("l", 0.69))
    p.line(choice.side("r"), net.side("l"))
    p.line(net.side("r"), rent.side("l"))
    return p


def renting() -> Picture:
    p = Picture(880, 248, "Renting: the record comes first, and both sides are compared again and again")
    choice = p.box(10, 20, 150, 76, "policy\nwhat each job\nshould hold", "violet")
    record = p.box(210, 20, 190, 76, "record and money\nin one transaction:\nrefused beyond the cap", "amber")
    compare = p.box(450, 20, 170, 76, "reconcile\nrecords and instances,\nby token", "blue")
    provider = p.box(690, 20, 180, 76, "provider\nends each instance\nwhen its time is over", "grey")
    jobs = p.box(210, 150, 190, 76, "jobs\nstart, checkpoint, move,\nby admission", "green")
    nodes = p.box(450, 150, 170, 76, "nodes\nof the engine", "green")
    p.line(choice.side("r"), record.side("l"))
    p.line(record.side("r"), compare.side("l"))
    p.line(compare.side("r", 0.3), provider.side("l", 0.3))
    p.text(655, 34, "launch, extend,\nend")
    p.line(provider.side("l", 0.75), compare.side("r", 0.75), dashed=True)
    p.text(655, 92, "instances,\nnotices")
    p.line(compare.side("b"), nodes.side("t"))
    p.line(nodes.side("l"), jobs.side("r"))
    p.line(jobs.side("l"), (85, 188), choice.side("b"), dashed=True)
    p.text(96, 208, "work that is left", "start")
    return p


def shell() -> Picture:
    p = Picture(880, 262, "A pipeline of which a part runs next to its data")
    shell_box = p.box(10, 20, 170, 76, "the shell\nruns the script, and\nexpands all words", "green")
    stages = p.box(10, 164, 170, 76, "stages\nask, then stand in for\ntheir commands", "blue")
    agent = p.box(250, 92, 190, 76, "agent\njoins stages by pipes,\nplans, passes on", "violet")
    proxy = p.box(520, 92, 170, 76, "proxy\nstreams with credit,\nover ssh", "violet")
    world = p.box(740, 20, 130, 76, "commands\nin a namespace\nwith equal names", "green")
    data = p.box(740, 164, 130, 76, "the data\nof the site", "grey")
    p.line(shell_box.side("b"), stages.side("t"))
    p.text(140, 132, "exec", "start")
    p.line(stages.side("r"), agent.side("l", 0.75))
    p.line(agent.side("r"), proxy.side("l"))
    p.text(480, 84, "link")
    p.line(proxy.side("r", 0.3), world.side("l"))
    p.line(world.side("b"), data.side("t"))
    p.line((740, 210), (440, 226), (180, 226), dashed=True)
    p.text(470, 248, "the mount: what runs here reads through it")
    return p


def recurrent() -> Picture:
    p = Picture(880, 282, "A recurrent layer: from an expression to a loop in registers")
    cell = p.box(10, 20, 180, 76, "cell\na pure expression\nof x, h, c", "grey")
    nest = p.box(240, 20, 180, 76, "loop nest\nstages, schedule:\ntile, unroll, hoist", "violet")
    code = p.box(470, 20, 180, 76, "machine code\nby LLVM, cached", "blue")
    search = p.box(700, 20, 170, 76, "search\nmodel prunes,\nmeasurements choose", "amber")
    project = p.box(
        10,
        150,
        250,
        112,
        "input, before the steps\nfor h: for t, some at once\nsum over r of w[g,h,r] * x[t,r]",
        "green",
    )
    step = p.box(
        310,
        150,
        340,
        112,
        "each step t\nfor h, hu vectors: for b, some rows\nsum over r of w[g,h,r] * h[r], all gates g\n"
        "bias, sigmoid, tanh, new c and h\nall in registers",
        "green",
    )
    state = p.box(700, 150, 170, 112, "states\none block a session,\ntwo copies: read one,\nwrite the other", "blue")
    p.line(cell.side("r"), nest.side("l"))
    p.line(nest.side("r"), code.side("l"))
    p.line(search.side("l"), code.side("r"), dashed=True)
    p.line(nest.side("b"), (330, 123), (135, 123), project.side("t"))
    p.line(code.side("b"), (560, 123), (480, 123), step.side("t"))
    p.line(project.side("r"), step.side("l"))
    p.line(step.side("r", 0.3), state.side("l", 0.3))
    p.line(state.side("l", 0.75), step.side("r", 0.75))
    return p


def cascade() -> Picture:
    p = Picture(880, 300, "A cascade: three roles of data, and the path of a row")
    rows = p.box(10, 60, 120, 56, "rows\nwith labels", "grey")
    fit = p.box(190, 10, 230, 48, "fit\nthe pipeline, models of stages", "blue")
    select = p.box(190, 66, 230, 48, "select\nstages, rules, which test", "violet")
    certify = p.box(190, 122, 230, 48, "certify\nstrict to bold, used once", "green")
    artefact = p.box(640, 66, 210, 48, "artefact\nprogram and certificate", "amber")
    for role in (fit, select, certify):
        p.line(rows.side("r"), role.side("l"))
        p.line(role.side("r"), artefact.side("l"))
    request = p.box(10, 214, 120, 56, "a row\nto predict", "grey")
    cheap = p.box(190, 214, 190, 56, "cheap stage\nfew groups", "blue")
    full = p.box(440, 214, 190, 56, "full pipeline\nall groups", "violet")
    answer = p.box(720, 214, 130, 56, "answer\nand its stage", "green")
    p.line(request.side("r"), cheap.side("l"))
    p.line(cheap.side("r"), full.side("l"))
    p.text(410, 232, "unsure")
    p.line(full.side("r"), answer.side("l"))
    p.line(cheap.side("b"), (285, 290), (785, 290), answer.side("b"))
    p.text(500, 285, "sure")
    return p


def cache() -> Picture:
    p = Picture(880, 236, "A shared cache: what a reader does, and what the daemon does beside")
    reader = p.box(10, 20, 150, 76, "reader\nshoal::s3://...", "blue")
    links = p.box(250, 20, 170, 76, "links\nof this tenant:\na hit is an open", "green")
    contents = p.box(510, 20, 170, 76, "contents\nnamed by hash,\nwithin limits", "green")
    source = p.box(750, 86, 120, 76, "source\nS3, web,\nfiles", "grey")
    daemon = p.box(250, 146, 170, 76, "daemon\nrights, one fetch,\nchecked", "amber")
    rounds = p.box(510, 146, 170, 76, "rounds\nparts of each set,\ncertificate", "violet")
    p.line(reader.side("r"), links.side("l"))
    p.line(links.side("r"), contents.side("l"))
    p.line(reader.side("b"), (85, 184), daemon.side("l"), dashed=True)
    p.text(96, 206, "a miss", "start")
    p.line(daemon.side("t"), links.side("b"))
    p.line(rounds.side("l"), daemon.side("r"))
    p.line(rounds.side("t"), contents.side("b"))
    p.line(source.side("l"), (715, 124), (715, 58), contents.side("r"))
    return p


PICTURES: dict[str, Callable[[], Picture]] = {
    "architecture": architecture,
    "job": job,
    "request": request,
    "round": round_,
    "engine": engine,
    "guard": guard,
    "deaths": deaths,
    "forecast": forecast,
    "cascade": cascade,
    "market": market,
    "renting": renting,
    "cache": cache,
    "shell": shell,
    "recurrent": recurrent,
}

if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw().svg())
