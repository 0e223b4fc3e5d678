"""Look-ups and joins: real stores, counted requests, and what happens when one is killed, slow, or answers short."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from shoal.cascade import Cascade, Join, Lookup, optimize
from shoal.cascade.caching import choose_caches
from shoal.cascade.models.base import Link, Output
from shoal.cascade.models.linear import Linear
from shoal.cascade.program import Group, Program, Stage
from shoal.cascade.runtime import CascadeRuntime
from shoal.cascade.steps.lookup import JoinStep, LookupStep, fetch_together
from shoal.cascade.stores import CachedStore, checked, open_store
from shoal.cascade.table import Table
from shoal.core import Invalid, Unavailable
from shoal.inference import ModelSpec
from tests.store.conftest import postgresql

__all__ = ["postgresql"]
redis = pytest.importorskip("redis")
ROWS = 3000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """A real Redis on a socket of its own, and its process."""
    socket = tmp_path / "redis.sock"
    words = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(tmp_path)]
    try:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("no redis-server (apt-get install redis-server)")
    client = redis.Redis(unix_socket_path=str(socket))
    for _ in range(600):
        try:
            client.ping()
            break
        except redis.exceptions.ConnectionError:
            time.sleep(0.05)
    yield f"unix://{socket}", client, process
    process.kill()
    process.wait()


def fill(client: Any) -> tuple[pd.DataFrame, Any]:
    """Users tell the label in most rows, items in the others."""
    draw = np.random.default_rng(0)
    user, item = draw.integers(0, 200, ROWS), draw.integers(0, 300, ROWS)
    users = draw.choice([-2.0, 0.0, 2.0], 200, p=[0.4, 0.2, 0.4])
    items = draw.choice([-1.0, 1.0], 300)
    y = (users[user] + items[item] > 0).astype(int)
    for number, value in enumerate(users):
        client.set(f"user:{number}", np.array([value, 1.0], "<f4").tobytes())
    for number, value in enumerate(items):
        client.set(f"item:{number}", np.array([value], "<f4").tobytes())
    return pd.DataFrame({"user": user, "item": item, "row": np.arange(ROWS)}), y


def pipeline(url: str, model: Any) -> Any:
    columns = ColumnTransformer(
        [
            ("user", Lookup(url, "user:", 2, deadline_s=5.0), ["user"]),
            ("item", Lookup(url, "item:", 1, deadline_s=5.0), ["item"]),
            ("row", "passthrough", ["row"]),
        ]
    )
    return make_pipeline(columns, model)


def requests(client: Any) -> tuple[int, int]:
    """MGETs so far, and keys asked."""
    stats = client.info("commandstats").get("cmdstat_mget", {"calls": 0})
    info = client.info("stats")
    return int(stats["calls"]), int(info["keyspace_hits"]) + int(info["keyspace_misses"])


@pytest.mark.parametrize("model", [LogisticRegression(), GradientBoostingClassifier(n_estimators=20)],
                         ids=lambda model: type(model).__name__)  # fmt: skip
def test_a_cascade_asks_fewer_keys_and_a_stage_asks_once(server: Any, model: Any, tmp_path: Path) -> None:
    url, client, _ = server
    rows, y = fill(client)
    cascade = optimize(pipeline(url, model), rows, y, max_loss=0.01, objective="lookups")
    assert cascade.certificate is not None, cascade.explain()
    cascade.save(tmp_path / "one.cascade")
    loaded = Cascade.load(tmp_path / "one.cascade")
    calls, keys = requests(client)
    found, stages = loaded.answers(rows[:500])
    later_calls, later_keys = requests(client)
    assert later_calls - calls <= 2  # one request a stage, whatever the rows
    assert 500 <= later_keys - keys < 1000  # of 1,000 that the full pipeline asks
    assert (stages == 0).any()
    full = Cascade(loaded.full, loaded.columns)
    calls, keys = requests(client)
    np.testing.assert_array_equal(full.predict(rows[:500]), cascade.original.predict(rows[:500]))
    later_calls, later_keys = requests(client)
    assert later_keys - keys == 2000
    assert later_calls - calls == 3  # ours for both look-ups, and one for each by scikit-learn
    assert (found == full.predict(rows[:500])).mean() > 0.98


def served(path: Path, **options: Any) -> CascadeRuntime:
    return CascadeRuntime(ModelSpec("m", str(path), "cascade", options=options))


def test_a_store_that_is_killed_fails_or_is_said_never_silently(server: Any, tmp_path: Path) -> None:
    url, client, process = server
    rows, y = fill(client)
    cascade = optimize(pipeline(url, LogisticRegression()), rows, y, max_loss=0.01, objective="lookups")
    cascade.save(tmp_path / "one.cascade")
    strict = served(tmp_path / "one.cascade")
    inputs = {name: rows[name].to_numpy(np.float64)[:50] for name in ("user", "item", "row")}
    found = strict.run(inputs, [])
    assert not found["approximate"].any()
    assert strict.state().word == "CERTIFIED"
    process.kill()
    process.wait()
    with pytest.raises(Unavailable, match="store is away"):
        strict.run(inputs, [])
    assert strict.state().word == "DEGRADED"
    with pytest.raises(Unavailable):  # the first stage needs the store as well
        served(tmp_path / "one.cascade", without_store="approximate").run(inputs, [])


class Flaky:
    """A store that answers the keys of one prefix only."""

    def __init__(self, works: str) -> None:
        self.works = works
        self.asked: list[list[str]] = []

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.asked.append(list(keys))
        if not all(key.startswith(self.works) for key in keys):
            raise OSError("timed out")
        return [np.array([1.0, 1.0], "<f4").tobytes() for _ in keys]


def test_with_leave_the_cheap_stage_answers_and_says_so(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shoal.cascade.steps import lookup

    url, client, _ = server
    rows, y = fill(client)
    cascade = optimize(pipeline(url, LogisticRegression()), rows, y, max_loss=0.01, objective="lookups")
    cascade.save(tmp_path / "one.cascade")
    runtime = served(tmp_path / "one.cascade", without_store="approximate")
    inputs = {name: rows[name].to_numpy(np.float64)[:200] for name in ("user", "item", "row")}
    normal = runtime.run(inputs, [])
    monkeypatch.setattr(lookup, "store_of", lambda place: Broken(lookup_of(url)))
    found = runtime.run(inputs, [])
    unsure = normal["stage"] > 0
    assert unsure.any()
    np.testing.assert_array_equal(found["approximate"], unsure)
    np.testing.assert_array_equal(found["predict"][~unsure], normal["predict"][~unsure])
    assert runtime.state().word == "DEGRADED"


def lookup_of(url: str) -> Any:
    return open_store(url, 5.0)


class Broken:
    """Works for users, and is away for items."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get_many(self, keys: Any) -> Any:
        if any(key.startswith("item:") for key in keys):
            raise OSError("timed out")
        return self._store.get_many(keys)


def test_a_slow_store_is_away_after_its_deadline(server: Any) -> None:
    url, client, _ = server
    client.set("a:1", b"\0" * 4)
    step = LookupStep(url, "a:", 1, deadline_s=0.3)
    assert step.apply(np.array([[1]])).tolist() == [[0.0]]
    client.execute_command("CLIENT", "PAUSE", "60000", "ALL")
    with pytest.raises(OSError, match="Redis"):
        step.apply(np.array([[1]]))


def test_short_answers_and_values_of_another_size_are_refused() -> None:
    with pytest.raises(OSError, match="1 values to 2 keys"):
        checked([b"x"], 2)
    with pytest.raises(ValueError, match="has 3 bytes, not 8"):
        LookupStep("redis://x", "a:", 2).values([b"abc"])
    missing = LookupStep("redis://x", "a:", 2, missing=-1.0).values([None, np.array([1, 2], "<f4").tobytes()])
    assert missing.tolist() == [[-1.0, -1.0], [1.0, 2.0]]


def test_sqlite_and_http_stores(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "f.db") as database:
        database.execute("CREATE TABLE users (key TEXT PRIMARY KEY, value BLOB)")
        database.execute("INSERT INTO users VALUES ('u:1', ?)", [np.array([7.0], "<f8").tobytes()])
    step = LookupStep(f"sqlite://{tmp_path}/f.db?table=users", "u:", 1, "<f8", missing=0.0)
    assert step.apply(np.array([[1], [2]])).tolist() == [[7.0], [0.0]]
    with pytest.raises(OSError, match="SQLite"):
        LookupStep(f"sqlite://{tmp_path}/none.db?table=users", "u:", 1).apply(np.array([[1]]))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["keys"]
            body = json.dumps({"values": ["AAAAAA==" if key == "h:1" else None for key in keys][:2]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        remote = LookupStep(f"http://127.0.0.1:{http.server_port}/", "h:", 1, missing=5.0)
        assert remote.apply(np.array([[1], [2]])).tolist() == [[0.0], [5.0]]
        with pytest.raises(OSError, match="2 values to 3 keys"):
            remote.apply(np.array([[1], [2], [3]]))
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.mark.slow
def test_postgresql_that_closes_connections_or_is_too_slow(postgresql: Any) -> None:
    with psycopg.connect(postgresql.url("postgres"), autocommit=True) as database:
        database.execute("CREATE TABLE users (key TEXT PRIMARY KEY, value BYTEA)")
        database.execute("INSERT INTO users VALUES ('u:1', %s)", [np.array([7.0], "<f8").tobytes()])
        step = LookupStep(f"{postgresql.url('postgres')}?table=users", "u:", 1, "<f8", 0.0, deadline_s=0.5)
        users = np.array([[1], [2], [1]])
        assert step.apply(users).tolist() == [[7.0], [0.0], [7.0]]
        others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'SELECT key%'"
        database.execute(others)
        assert step.apply(users).tolist() == [[7.0], [0.0], [7.0]]
        with database.transaction():
            database.execute("LOCK TABLE users")
            with pytest.raises(OSError, match="statement timeout"):
                step.apply(users)
        assert step.apply(users[:1]).tolist() == [[7.0]]
        database.execute("DROP TABLE users")
        with pytest.raises(OSError, match="does not exist"):
            step.apply(users)


@pytest.mark.parametrize("url", ["ftp://x", "postgresql://h/d?table=a;drop", "sqlite:///f.db?table=a;drop"])
def test_stores_that_are_not_known_are_refused(url: str) -> None:
    with pytest.raises(Invalid):
        open_store(url, 1.0)


class Counting:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.asked += keys
        return [None if key == "none" else key.encode() * 10 for key in keys]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "none"]), max_size=6), max_size=30), st.integers(0, 1000))
def test_a_cache_changes_no_value_and_keeps_to_its_bytes(asked: list[list[str]], most: int) -> None:
    store, plain = Counting(), Counting()
    cache = CachedStore(store, most, 1e9)
    for keys in asked:
        assert cache.get_many(keys) == plain.get_many(keys)
        assert cache._bytes <= most
        assert cache._bytes == sum(cache._size(key, value) for key, (value, _) in cache._values.items())
    assert cache.hits + cache.misses == sum(map(len, asked))


def test_a_cache_keeps_hot_keys_and_forgets_in_time() -> None:
    store, now = Counting(), [0.0]
    cache = CachedStore(store, 2 * 165, 10.0, clock=lambda: now[0])
    for _ in range(20):
        cache.get_many(["a", "b"])
    assert store.asked == ["a", "b"]
    cache.get_many([f"cold{number}" for number in range(50)])  # none is asked for as often
    assert cache.get_many(["a"]) == [b"a" * 10]
    assert store.asked.count("a") == 1
    now[0] = 11.0
    cache.get_many(["a"])
    assert store.asked.count("a") == 2


@pytest.mark.parametrize(("keys", "on", "asking"), [(5, True, 0.05), (100, False, 1.0)])
def test_a_cache_is_left_out_unless_it_pays_on_the_rows(keys: int, on: bool, asking: float) -> None:
    rows = pd.DataFrame({"key": np.arange(100) % keys, "other": np.arange(100) % keys})
    members = [(name, Lookup("unix:///none", f"{name}:", 1, ttl_s=60.0), [name]) for name in ("key", "other")]
    groups = [Group(name, (name,), False, (lookup.step(),), 1) for name, lookup, (name,) in members]
    program = Program(groups, [Stage((0, 1), Linear(np.ones((2, 1)), np.zeros(1), Output(Link.VALUE)))])
    now, store = [0.0], Counting()

    def clock() -> float:
        now[0] += 1e-3  # 40 requests take as long as 100 searches
        return now[0]

    found, (told,) = choose_caches(program, Table.of(rows), clock, lambda url, deadline_s: store)
    assert (told["on"], told["rows_that_ask"], told["groups"]) == (on, asking, ["key", "other"])
    assert len(store.asked) == 2 * 2 * 40
    assert [bool(group.lookup and group.lookup.cache_bytes) for group in found.groups] == [on, on]
    never = Lookup("unix:///none")  # no value may be old
    assert never.step().cache_bytes == 0
    assert choose_caches(Program([replace(groups[0], steps=(never.step(),))], [Stage((0,), program.stages[0].model)]),
                         Table.of(rows))[1] == []  # fmt: skip


def test_look_ups_of_one_place_are_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.cascade.steps import lookup

    store = Flaky("")
    monkeypatch.setattr(lookup, "store_of", lambda place: store)
    steps = [LookupStep("redis://one", "a:", 2), LookupStep("redis://two", "c:", 2), LookupStep("redis://one", "b:", 2)]
    found = fetch_together([(step, np.array([[1], [2]])) for step in steps])
    assert store.asked == [["a:1", "a:2", "b:1", "b:2"], ["c:1", "c:2"]]
    assert [one.shape for one in found] == [(2, 2)] * 3


def test_values_of_two_types_and_keys_that_are_not_there_in_one_request(server: Any) -> None:
    url, client, _ = server
    client.set("a:7", np.array([0.1, 2.0], "<f4").tobytes())
    client.set("b:7:x", np.array([0.1], "<f8").tobytes())
    steps = [LookupStep(url, "a:", 2, missing=-1.0), LookupStep(url, "b:", 1, "<f8", missing=-2.0)]
    blocks = [np.array([[7.0], [8.0]]), np.array([[7.0, "x"], [7, "y"]], object)]
    before = requests(client)[0]
    first, second = fetch_together(list(zip(steps, blocks, strict=True)))
    assert requests(client)[0] == before + 1
    np.testing.assert_array_equal(first, [[np.float32(0.1), 2.0], [-1.0, -1.0]])
    np.testing.assert_array_equal(second, [[0.1], [-2.0]])
    wrong = LookupStep(url, "a:", 3)
    with pytest.raises(ValueError, match="8 bytes, not 12"):
        fetch_together([(wrong, blocks[0]), (steps[1], blocks[1])])


def test_a_connection_that_the_server_closed_is_made_anew_and_none_is_shared(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, client, _ = server
    client.set("a", b"1")
    client.set("b", b"2")
    store = open_store(f"{url}?db=0", 5.0)
    assert store.get_many(["a", "none"]) == [b"1", None]
    client.client_kill_filter(_type="normal", skipme=True)
    assert store.get_many(["b", "a"]) == [b"2", b"1"]
    wrong: list[Any] = []

    def ask(key: str, value: bytes) -> None:
        wrong.extend(found for found in (store.get_many([key]) for _ in range(200)) if found != [value])

    threads = [threading.Thread(target=ask, args=given) for given in [("a", b"1"), ("b", b"2")] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    before = {one["id"] for one in client.client_list()}
    with monkeypatch.context() as child:  # as after a fork: the parent's connections are not the child's
        child.setattr(os, "getpid", lambda: 1)
        assert store.get_many(["b"]) == [b"2"]
    assert len({one["id"] for one in client.client_list()} - before) == 1


# ---- joins ----


def test_a_join_is_what_pandas_merges() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"town": list("abcd") * 2, "hour": [1, 2] * 4, "wind": draw.random(8), "rain": draw.random(8)})
    rows = pd.DataFrame({"town": draw.choice(list("abcz"), 50), "hour": draw.integers(0, 4, 50), "x": draw.random(50)})
    merged = rows.merge(table.drop_duplicates(["town", "hour"]), on=["town", "hour"], how="left")
    y = np.array(merged.wind.fillna(0) > 0.3, int)
    y[0] = 1 - y[0]
    join = Join(table, ["town", "hour"], ["wind", "rain"], missing=-1.0)
    columns = ColumnTransformer([("weather", join, ["town", "hour"]), ("own", "passthrough", ["x"])])
    made = make_pipeline(columns, LogisticRegression()).fit(rows, y)
    np.testing.assert_array_equal(made[0].transform(rows)[:, :2], merged[["wind", "rain"]].fillna(-1.0))
    from shoal.cascade.frontend.pipelines import lower_pipeline

    program, remarks = lower_pipeline(made, Table.of(rows))
    assert remarks == []
    scores = program.run(Table.of(rows)).scores[:, 0]
    np.testing.assert_allclose(scores, made.decision_function(rows), atol=1e-12)
    fitted = made[0].named_transformers_["weather"].step_
    assert JoinStep.restore(*fitted.state()).keys == fitted.keys


def test_a_join_by_one_key_and_one_with_equal_keys() -> None:
    table = pd.DataFrame({"plane": ["n1", "n2", "n1"], "seats": [10, 20, 99]})
    join = Join(table, ["plane"], ["seats"]).fit(None)
    assert join.transform(pd.DataFrame({"p": ["n2", "n1", "?"]}))[:2].tolist() == [[20.0], [10.0]]
    with pytest.raises(ValueError, match="not unique"):
        JoinStep((("a",), ("a",)), np.zeros((2, 1)))
