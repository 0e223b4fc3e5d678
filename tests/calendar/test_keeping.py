"""What windows were promised, held against oracles that know nothing of how it is decided."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shoal.calendar.keeping import CPU, FOREVER, Ask, Book, Load
from shoal.calendar.windows import Plan, Window
from shoal.core import ANY

GPU = "a100"
TENANTS = ["ada", "bob", "eve"]


def window(
    begin: float, end: float, tenant: str | None = "ada", devices: int | None = 2, nodes: tuple[str, ...] = (),
    name: str = "w",
) -> Window:  # fmt: skip
    return Window(Plan(name, name, tenant, begin, end, nodes, devices), begin, end)


def cluster(*devices: int) -> dict[str, dict[str, int]]:
    return {f"n{n}": {GPU: count, CPU: 1000 * count} for n, count in enumerate(devices)}


def load(job: str, tenant: str, node: str, devices: int, end: float = FOREVER) -> Load:
    return Load(job, tenant, {node: {GPU: devices}}, end)


def ask(job: str, tenant: str, devices: int, length: float | None, ranks: int = 1) -> Ask:
    return Ask(job, tenant, {GPU: devices}, ranks, length)


def test_a_job_that_ends_before_may_start_and_one_that_does_not_is_kept_off() -> None:
    book = Book(0.0, cluster(4, 4), [], [window(100.0, 200.0, nodes=("n0",), devices=None)])
    found = book.verdicts([ask("short", "bob", 1, 100.0), ask("long", "bob", 1, 101.0), ask("own", "ada", 1, 500.0)])
    assert list(found) == ["long"]
    assert set(found["long"].off) == {"n0"}
    assert not found["long"].held


def test_a_job_that_fits_nowhere_is_held_until_the_window_is_over() -> None:
    book = Book(0.0, cluster(4), [], [window(100.0, 200.0)])
    found = book.verdicts([ask("wide", "bob", 3, 150.0), ask("narrow", "bob", 2, 150.0)])
    assert list(found) == ["wide"]
    assert (found["wide"].held, found["wide"].until) == (True, 200.0)


def test_two_reservations_lie_beside_each_other() -> None:
    book = Book(0.0, cluster(4, 4), [], [window(1.0, 9.0, "ada", 4, name="a"), window(2.0, 8.0, "bob", 4, name="b")])
    assert sorted(name for claim in book.claims for name in claim.amounts) == ["n0", "n1"]
    assert book.verdicts([ask("x", "eve", 1, 5.0)])["x"].held


def test_what_has_no_limit_leaves_before_a_window_and_only_what_must() -> None:
    loads = [load("a", "bob", "n0", 1), load("b", "bob", "n0", 2), load("c", "bob", "n0", 1, 90.0)]
    book = Book(0.0, cluster(4), loads, [window(100.0, 200.0)], lead_s=50.0)
    assert book.leaving(50.0, {}) == {}
    assert set(replace(book, now=60.0).leaving(50.0, {"a": 1.0, "b": 9.0})) == {"a"}
    assert set(replace(book, now=60.0).leaving(50.0, {"a": 9.0, "b": 1.0})) == {"b"}


def test_maintenance_leaves_nothing_on_its_node() -> None:
    loads = [load("a", "bob", "n0", 1), load("b", "ada", "n1", 1), load("c", "ada", "n0", 1, 99.0)]
    book = Book(60.0, cluster(4, 4), loads, [window(100.0, 200.0, None, None, ("n0",))], lead_s=50.0)
    assert set(book.leaving(50.0, {})) == {"a"}
    assert set(book.verdicts([ask("x", "ada", 1, None)])["x"].off) == {"n0"}


def test_what_has_no_limit_counts_beside_a_start_until_it_would_be_asked_to_leave() -> None:
    book = Book(60.0, cluster(4), [load("a", "bob", "n0", 2)], [window(100.0, 200.0)], lead_s=50.0)
    assert book.refuser(ask("x", "bob", 1, 60.0), "n0") is not None
    assert replace(book, now=0.0).refuser(ask("x", "bob", 1, 150.0), "n0") is None


def test_what_lies_on_named_nodes_is_placed_before_what_lies_anywhere() -> None:
    windows = [window(1.0, 9.0, "ada", 4, name="a"), window(1.0, 9.0, "bob", 4, ("n0",), name="b")]
    claims = Book(0.0, cluster(4, 4), [], windows).claims
    assert {one.window.plan.id: {*one.amounts} for one in claims} == {"a": {"n1"}, "b": {"n0"}}


def test_any_device_is_each_of_them_and_others_than_the_claimed_are_free() -> None:
    nodes = {"n0": {GPU: 2, "h100": 2, CPU: 4000}}
    pinned = Window(Plan("w", "w", "ada", 0.0, 100.0, (), 2, GPU), 0.0, 100.0)
    book = Book(0.0, nodes, [], [pinned])
    assert book.refuser(Ask("x", "bob", {"h100": 1}, 1, 50.0), "n0") is None
    assert book.refuser(Ask("x", "bob", {GPU: 1}, 1, 50.0), "n0") is pinned
    assert book.refuser(Ask("x", "bob", {ANY: 1}, 1, 50.0), "n0") is pinned
    assert book.refuser(Ask("x", "ada", {ANY: 1}, 1, 50.0), "n0") is None


def test_a_window_for_devices_where_there_is_none_claims_nothing() -> None:
    (claim,) = Book(0.0, {"n0": {CPU: 4000}}, [], [window(0.0, 9.0)]).claims
    assert claim.amounts == {}


# --- oracles ---

times = st.integers(0, 12)
spans = st.tuples(times, st.integers(1, 6)).map(lambda both: (float(both[0]), float(sum(both))))
windows_of = st.lists(
    st.builds(
        lambda span, tenant, devices, nodes, name: window(*span, tenant, devices, nodes, name),
        spans, st.sampled_from([*TENANTS, None]), st.one_of(st.none(), st.integers(1, 4)),
        st.sampled_from([(), ("n0",), ("n1",), ("n0", "n1")]), st.sampled_from("abcdef"),
    ),
    max_size=3,
).map(lambda found: [replace(w, plan=replace(w.plan, id=f"{n}")) for n, w in enumerate(found)])  # fmt: skip
loads_of = st.lists(
    st.tuples(st.sampled_from(TENANTS), st.sampled_from(["n0", "n1"]), st.integers(1, 3), st.integers(1, 12)),
    max_size=4,
).map(lambda all_: [load(f"r{n}", t, node, d, float(end)) for n, (t, node, d, end) in enumerate(all_)])


def owed_at(book: Book, node: str, at: float, running: list[tuple[str, int, float]]) -> int | None:
    """Devices that a node owes at a moment; None: somebody is there who must not be. By the words of the module."""
    total = 0
    active = [claim for claim in book.claims if claim.window.begin <= at < claim.window.end]
    whole = [claim.window.plan.tenant for claim in active if node in claim.whole]
    for tenant in [*TENANTS, None]:
        used = sum(devices for who, devices, end in running if who == tenant and end > at)
        claimed = sum(
            book.nodes[node][GPU] if node in claim.whole else claim.amounts.get(node, {}).get(GPU, 0)
            for claim in active if claim.window.plan.tenant == tenant
        )  # fmt: skip
        if used and any(owner != tenant for owner in whole):
            return None
        total += max(used, claimed)
    return total


@given(windows_of, loads_of, st.sampled_from(TENANTS), st.integers(1, 3), st.integers(1, 12), st.integers(0, 6))
def test_a_start_is_refused_if_and_only_if_a_moment_shows_that_it_breaks_a_promise(
    windows: list[Window], loads: list[Load], tenant: str, devices: int, length: int, now: int
) -> None:
    book = Book(float(now), cluster(4, 3), [one for one in loads if one.end > now], windows)
    asked = ask("x", tenant, devices, float(length))
    for node in book.nodes:
        running = [(one.tenant, one.holds[node][GPU], one.end) for one in book.loads if node in one.holds]
        broken = False
        for half in range(2 * now, 2 * (now + length)):
            at = half / 2
            before = owed_at(book, node, at, running)
            after = owed_at(book, node, at, [*running, (tenant, devices, float(now + length))])
            planned = any(
                one.window.begin <= at < one.window.end and (node in one.whole or node in one.amounts)
                for one in book.claims
            )
            if planned and (after is None or (before is not None and after > max(4 - int(node[1]), before))):
                broken = True
        assert (book.refuser(asked, node) is not None) == broken


@given(
    windows_of, st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(1, 3), st.integers(1, 9), times), max_size=12)
)
def test_at_every_moment_each_window_can_have_what_it_was_promised(
    windows: list[Window], arrivals: list[tuple[str, int, int, int]]
) -> None:
    """An empty cluster, jobs that come one after the other, and a scheduler that starts whatever it may."""
    nodes = cluster(4, 3)
    feasible = all(
        sum((owed_at(Book(0.0, nodes, [], windows), node, at / 2, []) or 0) for node in nodes) <= 7
        and all((owed_at(Book(0.0, nodes, [], windows), node, at / 2, []) or 0) <= nodes[node][GPU] for node in nodes)
        for at in range(40)
    )
    if not feasible or any(one.plan.accelerators is not None and not one.plan.nodes for one in windows[1:]):
        return  # what people promise twice cannot be kept; and what may lie anywhere may move beside others
    running: list[Load] = []
    for now in range(20):
        running = [one for one in running if one.end > now]
        waiting = [
            ask(f"{n}", tenant, devices, float(length))
            for n, (tenant, devices, length, at) in enumerate(arrivals) if at == now
        ]  # fmt: skip
        book = Book(float(now), nodes, running, windows)
        verdicts = book.verdicts(waiting)
        started = list(running)
        for one in waiting:
            off = verdicts[one.job_id].off if one.job_id in verdicts else {}
            for node in nodes:
                free = nodes[node][GPU] - sum(each.holds[node][GPU] for each in started if node in each.holds)
                if node not in off and free >= one.rank[GPU]:
                    started.append(load(one.job_id, one.tenant, node, one.rank[GPU], now + (one.length_s or 0.0)))
                    break
        running = started
        after = Book(float(now), nodes, running, windows)
        for node, half in itertools.product(nodes, range(2)):
            there = [(one.tenant, one.holds[node][GPU], one.end) for one in running if node in one.holds]
            total = owed_at(after, node, now + half / 2, there)
            assert total is not None
            assert total <= nodes[node][GPU]


@given(windows_of, loads_of)
def test_those_who_leave_are_enough_and_none_of_them_could_stay(windows: list[Window], loads: list[Load]) -> None:
    book = Book(3.0, cluster(4, 3), [one for one in loads if one.end > 3.0], windows)
    leaving = book.leaving(0.0, {})
    for node, capacity in book.nodes.items():
        here = [one for one in book.loads if node in one.holds]
        if sum(one.holds[node][GPU] for one in here) > capacity[GPU]:
            continue  # no cluster has that
        stay = [(one.tenant, one.holds[node][GPU], one.end) for one in here if one.job_id not in leaving]
        total, least = owed_at(book, node, 3.0, stay), owed_at(book, node, 3.0, [])
        assert total is not None
        assert total <= max(capacity[GPU], least or 0)
        for one in here:
            if one.job_id in leaving:
                back = owed_at(book, node, 3.0, [*stay, (one.tenant, one.holds[node][GPU], one.end)])
                assert back is None or back > max(capacity[GPU], total)
