"""The generator against a server whose queue is known: what it sends, counts, and admits about itself.

Nothing here asserts how long something took by the clock: counts, orders, and the server's own books.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from shoal.base.arrivals import constant, poisson
from shoal.core import Invalid, NotFound, Unavailable
from shoal.measure.coldstart import cold_starts
from shoal.measure.live import measure_capacity
from shoal.measure.load.alarm import Alarm
from shoal.measure.load.generator import ClosedLoad, OpenLoad, Settings, drive, run, run_load
from shoal.measure.load.oip import Client
from shoal.measure.progress import Progress, bar, silent
from shoal.measure.search.judge import Goal
from shoal.measure.types import Floats, LoadResult, Target
from tests.measure.servers import Fake, running_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """`quick` takes no time, `slow` 2 ms of the one worker."""
    with running_server(Fake(models={"quick": 0.0, "slow": 0.002})) as url:
        yield url


def requests_served(url: str, model: str) -> int:
    async def ask() -> int:
        async with Client(url) as client:
            counters = await client.statistics(model)
            assert counters is not None
            return counters.requests

    return run(ask())


def test_every_arrival_is_sent_once_and_answered(url: str) -> None:
    arrivals = poisson(1000.0, 0.5, seed=1)
    before = requests_served(url, "quick")
    (result,) = run_load([OpenLoad(Target(url, "quick"), arrivals, 0.5)])
    assert np.array_equal(result.scheduled_s, arrivals)
    assert (result.status == 200).all()
    assert (result.sent_s >= result.scheduled_s).all()
    assert (result.done_s > result.sent_s).all()
    assert result.offered_per_s() == len(arrivals) / 0.5
    # One more to see that the model answers at all.
    assert requests_served(url, "quick") - before == len(arrivals) + 1
    assert result.server is not None
    assert result.server.requests == len(arrivals)


def test_an_overload_shows_as_latency_from_the_schedule_not_as_a_lower_rate(url: str) -> None:
    # Twice what the one worker can do: the backlog grows, and so must every latency.
    arrivals = constant(1000.0, 0.4)
    (result,) = run_load([OpenLoad(Target(url, "slow"), arrivals, 0.4)])
    assert result.count() == len(arrivals)
    latencies = result.latencies_s()
    assert latencies[-100:].min() > latencies[:100].max()
    assert result.completed_per_s() < 0.7 * result.offered_per_s()
    assert result.server is not None
    assert result.server.compute_s == pytest.approx(0.002)
    assert latencies.mean() >= result.server.queue_s + result.server.compute_s


def test_a_cap_holds_back_and_says_so(url: str) -> None:
    arrivals = constant(1000.0, 0.3)
    (result,) = run_load([OpenLoad(Target(url, "slow"), arrivals)], Settings(max_outstanding=4))
    assert result.held_back > 0
    assert (result.status == 200).all()
    outstanding = [
        int(((result.sent_s <= at) & (result.done_s > at)).sum()) for at in np.linspace(0.0, result.done_s.max(), 200)
    ]
    assert max(outstanding) <= 4
    held = result.sent_s - result.scheduled_s
    assert held[-10:].min() > held[:10].max()
    # Its own fault is the lag alone; what the cap did is told as the cap's.
    assert result.lag_s is not None
    assert result.lag_s.max() < held.max()


def test_a_closed_loop_never_has_more_unanswered_than_clients(url: str) -> None:
    (result,) = run_load([ClosedLoad(Target(url, "slow"), 3, 0.3)])
    assert not result.open_loop
    assert result.count() >= 3
    for at in np.linspace(0.0, 0.3, 100):
        assert ((result.sent_s <= at) & (result.done_s > at)).sum() <= 3


def test_tenants_beside_each_other_have_results_of_their_own(url: str) -> None:
    loads = [
        OpenLoad(Target(url, "quick", tenant="ann"), constant(400.0, 0.4), 0.4),
        OpenLoad(Target(url, "slow", tenant="bob"), constant(50.0, 0.4), 0.4),
        ClosedLoad(Target(url, "quick", "1", tenant="eve"), 1, 0.2),
    ]
    results = run_load(loads, Settings(warmup_s=0.1))
    assert [one.tenant for one in results] == ["ann", "bob", "eve"]
    assert [one.model for one in results] == ["quick", "slow", "quick:1"]
    assert [one.count() for one in results[:2]] == [120, 15]
    assert [len(one.scheduled_s) for one in results[:2]] == [160, 20]
    assert results[2].duration_s == pytest.approx(0.1)
    assert results[1].quantile(0.5).value > 0.002


def test_failures_are_counted_by_kind(url: str) -> None:
    with running_server(Fake(models={"fake": 0.0}, fail_every=4, drop_every=7)) as faulty:
        (result,) = run_load([OpenLoad(Target(faulty, "fake"), constant(500.0, 0.56))])
    # The first inference was the one that looked whether it answers.
    numbers = range(2, 2 + result.count())
    drops = sum(number % 7 == 0 for number in numbers)
    fails = sum(number % 4 == 0 and number % 7 != 0 for number in numbers)
    assert result.errors() == {"http 503": fails, "connection lost": drops}
    assert len(result.latencies_s()) == result.count() - drops - fails
    assert result.attainment(10.0).value == pytest.approx(1 - (drops + fails) / result.count())


def test_silence_is_a_timeout_and_a_hopeless_load_is_given_up() -> None:
    with running_server(Fake(models={"fake": 0.0}, stall_after=50)) as stalling:
        (result,) = run_load(
            [OpenLoad(Target(stalling, "fake"), constant(200.0, 60.0))], Settings(timeout_s=1.0, give_up_s=0.3)
        )
    assert result.aborted is not None
    assert result.aborted.code == "failing"
    assert "timeout" in result.aborted.text
    assert result.errors()["timeout"] > 0
    assert len(result.scheduled_s) < 12_000


def test_a_server_that_dies_is_noticed() -> None:
    with running_server(Fake(models={"fake": 0.0}, die_after=50)) as dying:
        (result,) = run_load([OpenLoad(Target(dying, "fake"), constant(200.0, 60.0))], Settings(give_up_s=0.3))
    assert result.aborted is not None
    assert set(result.errors()) <= {"could not connect", "connection lost"}
    assert len(result.latencies_s()) <= 50
    assert result.server is None


def test_a_watcher_hears_everything_in_order_and_can_end_the_load(url: str) -> None:
    heard: list[float] = []

    def watch(samples: Sequence[Floats]) -> bool:
        heard.extend(samples[0].tolist())
        return len(heard) >= 100

    load = OpenLoad(Target(url, "slow"), constant(200.0, 60.0))
    (result,) = run(drive([load], Settings(), watch=watch))
    assert 100 <= len(heard) < 1000
    assert heard == (result.done_s - result.scheduled_s)[: len(heard)].tolist()
    assert result.duration_s < 60.0
    assert not np.isnan(result.done_s).any()


def test_a_request_already_late_is_told_before_it_is_answered() -> None:
    heard: list[float] = []

    def watch(samples: Sequence[Floats]) -> bool:
        heard.extend(samples[0].tolist())
        return len(heard) >= 20

    with running_server(Fake(models={"fake": 0.0}, stall_after=1)) as mute:
        load = OpenLoad(Target(mute, "fake"), constant(200.0, 10.0))
        run(drive([load], Settings(timeout_s=2.0), watch=watch, late_s=0.05))
    assert np.isinf(heard[:20]).all()


@pytest.mark.parametrize(
    ("loads", "settings", "words"),
    [
        ([], {}, "nothing to run"),
        ([OpenLoad(Target("http://h", "m"), np.empty(0))], {}, "m: nothing arrives"),
        ([OpenLoad(Target("http://h", "m"), np.array([2.0, 1.0]))], {}, "ascending order"),
        ([OpenLoad(Target("http://h", "m"), np.array([-1.0, 1.0]))], {}, "from 0 on"),
        ([OpenLoad(Target("http://h", "m"), np.array([0.5]))], {"warmup_s": 1.0}, "before its warm-up of 1 s is over"),
        ([ClosedLoad(Target("http://h", "m"), 0, 1.0)], {}, "0 clients send nothing"),
        ([], {"timeout_s": 0.0}, "timeout_s: 0.0 is not positive"),
        ([], {"warmup_s": -1.0}, "warmup_s: -1.0 is negative"),
    ],
)
def test_loads_that_make_no_sense_are_refused(loads: list[OpenLoad], settings: dict[str, float], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        run_load(loads, Settings(**settings))  # type: ignore[arg-type]


def result_with(**changed: object) -> LoadResult:
    times = np.arange(100) / 100
    base = {
        "tenant": "", "model": "m", "scheduled_s": times, "sent_s": times, "done_s": times + 0.02,
        "status": np.full(100, 200), "duration_s": 1.0, "lag_s": np.zeros(100),
    }  # fmt: skip
    return LoadResult(**{**base, **changed})  # type: ignore[arg-type]


def test_the_generator_accuses_itself() -> None:
    assert result_with().bottleneck() is None
    # Less than a tenth of the median latency is no matter.
    assert result_with(lag_s=np.full(100, 0.0019)).bottleneck() is None
    late = result_with(lag_s=np.full(100, 0.005), cpu_share=0.1).bottleneck()
    assert late is not None
    assert late.code == "generator-lag"
    assert "other processes held it up" in late.text
    busy = result_with(cpu_share=0.97).bottleneck()
    assert busy is not None
    assert busy.code == "generator-cpu"
    held = result_with(held_back=5, max_outstanding=10).bottleneck()
    assert held is not None
    assert held.code == "outstanding-cap"


def test_a_stalled_generator_is_late_and_its_wait_counts_as_latency(url: str) -> None:
    stalled = False

    def stall(progress: Progress) -> None:
        nonlocal stalled
        if progress.sent > 20 and not stalled:
            stalled = True
            time.sleep(0.3)  # as a pause of the whole process would

    (result,) = run_load([OpenLoad(Target(url, "quick"), constant(200.0, 1.0), 1.0)], on_progress=stall)
    assert result.count() == 200
    assert result.lag_quantile_s(0.99) > 0.2
    assert result.latencies_s().max() >= result.lag_quantile_s(0.99)
    warning = result.bottleneck()
    assert warning is not None
    assert warning.code == "generator-lag"


async def test_an_alarm_rings_once_at_its_moment_and_never_before() -> None:
    rung: list[float] = []
    alarm = Alarm(lambda: rung.append(time.monotonic()))
    for delay_s in (-1.0, 0.0, 0.003, 0.01):
        due_s = time.monotonic() + delay_s
        alarm.set(due_s)
        async with asyncio.timeout(30.0):
            while not rung:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(rung) == 1
        assert rung.pop() >= due_s
    alarm.set(time.monotonic() + 0.01)
    alarm.close()
    await asyncio.sleep(0.05)
    assert rung == []


def test_a_bar_draws_on_terminals_only() -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with bar("x", stream=io.StringIO()) as show:
        assert show is silent
    terminal = Terminal()
    with bar("measuring", stream=terminal) as show:
        show(Progress(1.0, 2.0, 10, 8, 1))
        show(Progress(1.01, 2.0, 11, 9, 1))
    drawn = terminal.getvalue()
    assert drawn.count("measuring") == 1
    assert "8 answered, 8/s" in drawn
    assert drawn.endswith("\r\x1b[2K")


def test_cold_starts_are_timed_from_unload_to_answer() -> None:
    counted: list[int] = []
    with running_server(Fake(models={"fake": 0.001}, load_s=0.03)) as url:
        found = run(cold_starts(Target(url, "fake"), repeats=4, on_start=counted.append))
    assert counted == [1, 2, 3, 4]
    assert found.ready_s.shape == (4,)
    assert (found.ready_s >= 0.03).all()
    assert (found.first_s >= 0.001).all()
    assert (found.total_s() > found.ready_s).all()
    document = found.as_json()
    assert document["ecdf"]["share"][-1] == 1.0


def test_a_server_that_cannot_unload_is_told_apart_from_one_without_the_model() -> None:
    with running_server(Fake(repository=False)) as url:
        with pytest.raises(Unavailable, match="lacks the repository extension"):
            run(cold_starts(Target(url, "fake"), repeats=1))
        with pytest.raises(NotFound):
            run(cold_starts(Target(url, "other"), repeats=1))


def test_a_server_too_slow_even_alone_is_told_at_once(url: str) -> None:
    found = measure_capacity(Target(url, "slow"), Goal(0.001))
    assert found.capacity.rate_per_s.value == 0
    assert found.capacity.reason.code == "too-slow-alone"
    assert found.saturated is None
    assert found.loads == ()
