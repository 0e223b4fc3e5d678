"""Placement of the stages of a pipeline: pure, from what is known of them to a plan with a reason for each.

The pipeline becomes a graph for `shoal.placement`: its stages, the files they read (each pinned to its site), and its
output (pinned here). Time is work and what goes over links; a file that is read through its mount takes the mount's
rate and a few round trips. A first stage whose inputs lie on several sites is dealt out to them, with all following
stages that may work on pieces alone; their outputs come together in the order of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from shoal.shell.annotations import Split
from shoal.shell.stages import Piece, Reachable, Stage

if TYPE_CHECKING:
    from shoal.placement import Node

HERE = ""
ROUND_TRIPS_A_FILE = 3
"""Of a mount: to look it up, to open it, to read it."""
PASSING_S = 1e-4
"""What a stage here costs beside its work. It decides where the rest is equal: there the data need not leave a pipe."""
OUTSIDE_BYTES = 1e6
"""Of an input whose size nobody knows: what a loop or another program writes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where one stage runs: a site, `HERE`, or in `pieces`. `join`: how the outputs of its pieces become one, if
    they do not just follow one another. `in_bytes` and `out_bytes` are expected."""

    site: str
    why: str
    in_bytes: float = 0.0
    out_bytes: float = 0.0
    pieces: tuple[Piece, ...] = ()
    join: Split = Split.NEVER

    @property
    def away(self) -> bool:
        return self.site != HERE or bool(self.pieces)


Ratios = Mapping[str, float]
"""Measured bytes of output over bytes of input, by `ratio_key`."""


def ratio_key(stage: Stage) -> str:
    """What calls share that shrink data alike: the command and its options."""
    return " ".join([stage.title, *(word for word in stage.call.argv[1:] if word.startswith("-"))])[:200]


def flows(stages: Sequence[Stage], ratios: Ratios) -> list[tuple[float, float]]:
    """Expected bytes into and out of each stage."""
    found, before = list[tuple[float, float]](), 0.0
    for at, one in enumerate(stages):
        data = sum(one.data.values())
        reads_pipe = one.match is None or one.match.stdin
        taken = data + (before if at and reads_pipe else 0.0 if data or at or not reads_pipe else OUTSIDE_BYTES)
        ratio = 1.0 if one.match is None else ratios.get(ratio_key(one), one.match.ratio)
        before = taken * ratio
        found.append((taken, before))
    return found


CERTAIN = 0.01
"""What is expected to write less than this of what it reads does so: counts, sums, names."""
LESS, MORE = 0.1, 5.0
"""How far an expected ratio may be off, and it may always be 1."""
WORTH_A_TRIAL = 4e6


def uncertain(stages: Sequence[Stage], reachable: Mapping[str, Reachable], ratios: Ratios) -> Mapping[str, float]:
    """The ratios that were never measured and on which it hangs where the stages run, with what is expected of them;
    none where there is too little data to try them on."""
    first = stages[0].data
    if len(first) != 1 or not set(first) <= set(reachable) or sum(first.values()) < WORTH_A_TRIAL:
        return {}
    unknown = {ratio_key(one): one.match.ratio for one in stages if one.match is not None and _is_guess(one)}
    unknown = {key: ratio for key, ratio in unknown.items() if key not in ratios}
    ends = (
        {key: LESS * one for key, one in unknown.items()},
        {key: max(1, MORE * one) for key, one in unknown.items()},
    )
    if not unknown or _sites(stages, reachable, {**ratios, **ends[0]}) == _sites(
        stages, reachable, {**ratios, **ends[1]}
    ):
        return {}
    return unknown


def _sites(stages: Sequence[Stage], reachable: Mapping[str, Reachable], ratios: Ratios) -> list[str]:
    return [one.site for one in plan(stages, reachable, ratios)]


def _is_guess(one: Stage) -> bool:
    assert one.match is not None
    usual = one.match.ratio == one.match.annotation.ratio and one.match.ratio > CERTAIN
    return usual and not one.match.few and (one.match.ratio != 1.0 or bool(one.match.annotation.refuses))


def plan(stages: Sequence[Stage], reachable: Mapping[str, Reachable], ratios: Ratios) -> list[Decision]:
    """`stages` are those of one pipeline, each reading what the one before it writes."""
    flow = flows(stages, ratios)
    if stages[0].pieces:
        return _in_pieces(stages, flow)
    names = sorted({site for one in stages for site in one.sites if one.data} & set(reachable))
    if not names:
        return [Decision(HERE, _why_local(one, at, stages, flow), *flow[at]) for at, one in enumerate(stages)]
    where = _placed(stages, flow, names, reachable)
    return [Decision(site, _why(at, where, stages, flow), *flow[at]) for at, site in enumerate(where)]


def _placed(
    stages: Sequence[Stage],
    flow: Sequence[tuple[float, float]],
    names: Sequence[str],
    reachable: Mapping[str, Reachable],
) -> list[str]:
    from shoal.placement import Node

    nodes, places, own = list[Node](), [HERE, *names], list[int]()
    for at, one in enumerate(stages):
        inputs = []
        for site, size in one.data.items():
            if site not in names:
                continue
            through = _through_mount(size, one.files, reachable[site])
            nodes.append(Node(f"data of {site}", (0.0,) * len(places), (), through, places.index(site)))
            inputs.append(len(nodes) - 1)
        if at:
            inputs.append(own[-1])
        elif one.match is not None and one.match.stdin and not one.data:
            nodes.append(Node("input from outside", (0.0,) * len(places), (), OUTSIDE_BYTES, 0))
            inputs.append(len(nodes) - 1)
        rate = one.match.annotation.bytes_per_s if one.match else 1e9
        work = flow[at][0] / rate
        seconds = tuple(work + PASSING_S if site == HERE else work if site in one.sites else inf for site in places)
        nodes.append(Node(one.title, seconds, tuple(inputs), flow[at][1]))
        own.append(len(nodes) - 1)
    end = places.index(stages[-1].output) if stages[-1].output in names else 0
    nodes.append(Node("output", (0.0,) * len(places), (own[-1],), 0.0, end))
    trips = tuple((reachable[name].link_bytes_per_s, reachable[name].round_trip_s) for name in names)
    found = _assignment(tuple(nodes), tuple(names), trips)
    return [places[found[one]] for one in own]


@lru_cache(maxsize=256)
def _assignment(
    nodes: tuple[Node, ...], names: tuple[str, ...], trips: tuple[tuple[float, float], ...]
) -> tuple[int, ...]:
    """The place of each node; loops ask for the same again and again."""
    from shoal.placement import Graph, Link, place

    links = {}
    for number, (rate, trip) in enumerate(trips, 1):
        links[0, number] = links[number, 0] = Link(rate, trip)
    return place(Graph(nodes, ("here", *names), links)).assignment


def warm_up() -> None:
    """Place a graph of two nodes, so that the first pipeline does not wait for what that loads."""
    from shoal.placement import Graph, Link, Node, place

    nodes = (Node("first", (0.0, 0.0), (), 1.0, 1), Node("second", (0.0, 0.0), (0,), 0.0, 0))
    place(Graph(nodes, ("here", "there"), {(0, 1): Link(1.0), (1, 0): Link(1.0)}))


def _through_mount(size: float, files: int, site: Reachable) -> float:
    """Bytes that take as long over the link as the files take through their mount."""
    seconds = size / site.mount_bytes_per_s + files * ROUND_TRIPS_A_FILE * site.round_trip_s
    return seconds * site.link_bytes_per_s


def _in_pieces(stages: Sequence[Stage], flow: Sequence[tuple[float, float]]) -> list[Decision]:
    pieces = stages[0].pieces
    sites = {one.site for one in pieces}
    last, least, join = 0, flow[0][1], _join_of_files(stages[0])
    for at, one in enumerate(stages[1:] if join is Split.NEVER else (), 1):
        way = join_of_pieces(one) if sites <= one.sites else None
        if way is None:
            break
        if flow[at][1] <= least:
            last, least, join = at, flow[at][1], way
        if way is not Split.NEVER:
            break
    names = " and ".join(sorted(sites))
    found = []
    for at, one in enumerate(stages):
        if at <= last:
            what = "its inputs lie there" if at == 0 else f"it works on the pieces of {stages[0].title} alone"
            way = join if at == last else Split.NEVER
            why = f"on {names}: {what}{_JOINED[way]}"
            found.append(Decision(names, why, *flow[at], pieces=pieces, join=way))
        else:
            found.append(Decision(HERE, _why_local(one, at, stages, flow), *flow[at]))
    return found


def _join_of_files(first: Stage) -> Split:
    return Split.MERGE if first.match is not None and first.match.split is Split.MERGE else Split.NEVER


def join_of_pieces(one: Stage) -> Split | None:
    """How outputs over pieces of its stdin become one; NEVER where they follow one another, None where they do not."""
    if one.match is None or not one.match.stdin or one.match.reads or one.match.changes:
        return None
    return Split.NEVER if one.match.across else one.match.join or None


_JOINED = {
    Split.NEVER: "",
    Split.MERGE: ", and the pieces are merged here",
    Split.SUM: ", and its numbers are added here",
    Split.AGAIN: ", and then on their outputs here",
}


def _why_local(one: Stage, at: int, stages: Sequence[Stage], flow: Sequence[tuple[float, float]]) -> str:
    if one.why_here:
        return f"here: {one.why_here}"
    if at:
        return f"here. It reads {size(flow[at][0])} from {stages[at - 1].title}; sending it would save nothing"
    return "here: sending it to its data would save nothing" if one.data else "here: no data of a site comes to it"


def _why(at: int, where: Sequence[str], stages: Sequence[Stage], flow: Sequence[tuple[float, float]]) -> str:
    site, one = where[at], stages[at]
    if site == HERE:
        return _why_local(one, at, stages, flow)
    if one.data:
        return f"on {site}: its data, about {size(sum(one.data.values()))}, lies there"
    does = f"and writes {size(flow[at][1])} there" if one.output == site else f"and sends on {size(flow[at][1])}"
    return f"on {site}: it reads {size(flow[at][0])} from {stages[at - 1].title} there, {does}"


def size(count: float) -> str:
    """As people read it: 3.6 kB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"
