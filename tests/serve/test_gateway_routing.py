"""Who is served by which version, under which name and token; and the stats that are kept of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid, PriorityClass, token_digest
from shoal.inference.types import ModelSpec
from shoal.serve.contract import Deployment, GatewayConfig, TenantEntry
from shoal.serve.errors import UnknownModel
from shoal.serve.gateway.directory import Directory, queue_key
from shoal.serve.gateway.routing import Router
from shoal.serve.gateway.stats import WINDOW_S, Stats, Window, merged_quantiles
from shoal.serve.replica.messages import Times
from shoal.serve.types import Route, ServiceSpec

# --- shares ---

weights = st.lists(st.floats(0.001, 1.0) | st.just(0.0), min_size=1, max_size=6).filter(any)


def route(shares: Sequence[float], **more: object) -> Route:
    total = sum(shares)
    return Route(tuple((str(at), share / total) for at, share in enumerate(shares)), **more)  # type: ignore[arg-type]


@given(shares=weights)
@settings(max_examples=60)
def test_of_any_number_of_requests_each_version_gets_its_share_to_within_one(shares: list[float]) -> None:
    router = Router(route(shares))
    ready, got = frozenset(map(str, range(len(shares)))), Counter[str | None]()
    for asked in range(1, 400):
        got[router.choose(ready)] += 1
        assert all(abs(got[version] - share * asked) < 1 for version, share in router.route.shares)


@given(shares=weights, turns=st.lists(st.frozensets(st.sampled_from("012345")), max_size=12))
@settings(max_examples=60)
def test_the_share_of_a_version_that_is_not_ready_falls_to_the_others(
    shares: list[float], turns: list[frozenset[str]]
) -> None:
    router = Router(route(shares))
    for ready in turns:
        able = {version for version, share in router.route.shares if share > 0} & ready
        chosen = router.choose(ready)
        assert chosen in able if able else chosen is None


def test_a_version_that_comes_back_does_not_take_everything_it_missed() -> None:
    router, both = Router(Route((("1", 0.5), ("2", 0.5)))), frozenset("12")
    for _ in range(1000):
        assert router.choose(frozenset("1")) == "1"
    assert Counter(router.choose(both) for _ in range(10)) == {"1": 5, "2": 5}


def test_a_shadow_sees_its_part() -> None:
    router = Router(Route((("1", 1.0),), shadow="2", shadow_share=0.3))
    seen = [router.shadow(frozenset("12")) for _ in range(100)]
    assert Counter(seen) == {"2": 30, None: 70}
    assert router.shadow(frozenset("1")) is None
    assert Router(Route((("1", 1.0),))).shadow(frozenset("12")) is None


# --- names and tokens ---


def model(name: str, version: str = "1") -> ModelSpec:
    return ModelSpec(name, f"/{name}", version=version)


def deployed(service: str, tenant: str, models: Sequence[ModelSpec], generation: int = 1, **more: object) -> Deployment:
    spec = ServiceSpec(service, tenant, tuple(models), **more)  # type: ignore[arg-type]
    return Deployment(f"{tenant}.{service}", generation, spec, f"{tenant}.{service}.{generation}")


def configured(*deployments: Deployment, **more: object) -> GatewayConfig:
    tenants = tuple(TenantEntry(name, 1.0, (token_digest(name),)) for name in ("ada", "bob"))
    return GatewayConfig(1, "/s", 2, **{"tenants": tenants, "services": deployments, **more})  # type: ignore[arg-type]


def test_a_token_says_whose_models_are_seen() -> None:
    directory = Directory.of(
        configured(
            deployed("s", "ada", [model("m"), model("own")]), deployed("s", "bob", [model("m")]),
            admin_token_hashes=(token_digest("root"),),
        )
    )  # fmt: skip
    assert [directory.owner(token) for token in ("ada", "bob", "root", "eve", "", None)] == [
        "ada", "bob", "", None, None, None,
    ]  # fmt: skip
    assert directory.find("ada", "m").service_id == "ada.s"
    assert directory.find("bob", "m").service_id == "bob.s"
    assert directory.find("", "own").service_id == "ada.s"
    for tenant, name in (("bob", "own"), ("eve", "m"), ("ada", "none"), ("", "none")):
        with pytest.raises(UnknownModel, match=f"there is no model '{name}'"):
            directory.find(tenant, name)
    with pytest.raises(UnknownModel, match="several tenants have a model 'm': ada, bob"):
        directory.find("", "m")
    assert [entry.name for entry in directory.visible("bob")] == ["m"]
    assert len([*directory.visible("")]) == 3
    assert [*directory.visible("eve")] == []


@given(st.text(max_size=20))
def test_no_other_token_is_anybodys(token: str) -> None:
    directory = Directory.of(configured(deployed("s", "ada", [model("m")])))
    assert directory.owner(token) == (token if token in ("ada", "bob") else None)


@pytest.mark.parametrize("anonymous", [None, "", "ada"])
def test_calls_without_a_token_are_those_of_whom_the_configuration_says(anonymous: str | None) -> None:
    assert Directory.of(configured(anonymous=anonymous)).owner(None) == anonymous
    assert Directory().owner(None) is None


def test_generations_of_a_service_are_one_with_the_newest_in_charge() -> None:
    old = deployed("s", "ada", [model("m", "1"), model("gone")], 1, rate_limit=1.0)
    new = deployed(
        "s", "ada", [model("m", "2"), model("m", "3")], 2, rate_limit=2.0,
        routes=(("m", Route((("2", 0.3), ("3", 0.7)))),),
    )  # fmt: skip
    directory = Directory.of(configured(old, new))
    entry = directory.find("ada", "m")
    assert ([*entry.versions], entry.service, entry.main) == (["2", "3", "1"], new.spec, "3")
    assert directory.find("ada", "gone").service == old.spec
    assert directory.services == {"ada.s": new.spec}
    assert {*directory.deployments} == {"ada.s.1", "ada.s.2"}


def test_a_name_stays_with_whoever_has_it_whatever_generation_comes() -> None:
    mine = deployed("a", "ada", [model("m")])
    for generation in (1, 2):
        directory = Directory.of(configured(deployed("b", "ada", [model("m"), model("n")], generation), mine))
        assert directory.find("ada", "m").service_id == "ada.a"
        assert directory.find("ada", "n").service_id == "ada.b"
        assert directory.names_taken == {"ada.b": "m"}


def test_shares_stay_exact_over_a_change_elsewhere() -> None:
    shares = (("m", Route((("1", 0.5), ("2", 0.5)))),)
    service = deployed("s", "ada", [model("m", "1"), model("m", "2")], routes=shares)
    before = Directory.of(configured(service))
    router = before.find("ada", "m").router
    assert (
        Directory.of(configured(service, deployed("t", "bob", [model("m")])), before).find("ada", "m").router is router
    )
    other = deployed("s", "ada", [model("m", "1"), model("m", "2")], routes=(("m", Route((("1", 1.0),))),))
    assert Directory.of(configured(other), before).find("ada", "m").router is not router


def test_the_main_version_is_one_that_there_is() -> None:
    service = deployed("s", "ada", [model("m", "1")], routes=(("m", Route((("1", 0.1), ("2", 0.9)))),))
    assert Directory.of(configured(service)).find("ada", "m").main == "1"
    assert (
        Directory.of(configured(deployed("s", "ada", [model("m", "1"), model("m", "2")]))).find("ada", "m").main == "2"
    )


def test_only_a_version_that_answers_nobody_is_best_effort() -> None:
    models = [model("m", version) for version in "123"]
    service = deployed("s", "ada", models, routes=(("m", Route((("1", 1.0), ("2", 0.0)), "3", 0.5)),))
    entry = Directory.of(configured(service)).find("ada", "m")
    kinds = [entry.priority_class(version) for version in "123"]
    assert kinds == [PriorityClass.GUARANTEED, PriorityClass.GUARANTEED, PriorityClass.BEST_EFFORT]
    both = deployed("s", "ada", models, routes=(("m", Route((("1", 0.9), ("3", 0.1)), "3", 0.5)),))
    assert not Directory.of(configured(both)).find("ada", "m").shadows("3")
    assert queue_key("ada", "m", "3") == entry.key("3")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (configured(tenants=(TenantEntry("ada", 0.0),)), "tenant ada: a weight must be positive"),
        (configured(tenants=(TenantEntry("ada", float("inf")),)), "a weight must be positive"),
        (configured(deployed("s", "ada", [])), "service s: a service has at least one model"),
        (configured(deployed("s", "ada", [model("m")], rate_limit=0.0)), "rate_limit and burst_s must be positive"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_as_a_whole(config: GatewayConfig, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        Directory.of(config)


# --- stats ---

latencies = st.lists(st.floats(1e-5, 400.0), min_size=1, max_size=300)


@given(seen=latencies, wanted=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4))
def test_quantiles_are_right_to_two_percent(seen: list[float], wanted: list[float]) -> None:
    window = Window()
    for latency in seen:
        window.add(latency, 100.0)
    exact = np.quantile(seen, wanted, method="inverted_cdf")
    np.testing.assert_allclose(np.array(window.quantiles(tuple(wanted), 100.0), float), exact, rtol=0.02)


@given(parts=st.lists(latencies, min_size=1, max_size=4))
def test_windows_together_are_as_one(parts: list[list[float]]) -> None:
    windows, together = [Window() for _ in parts], Window()
    for window, part in zip(windows, parts, strict=True):
        for latency in part:
            window.add(latency, 7.0)
            together.add(latency, 7.0)
    wanted = (0.0, 0.5, 0.99, 1.0)
    assert merged_quantiles(windows, wanted, 7.0) == together.quantiles(wanted, 7.0)


@given(seen=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(1e-4, 1.0)), max_size=40), later=st.floats(0, 200))
def test_only_the_last_minute_is_remembered(seen: list[tuple[float, float]], later: float) -> None:
    window, now = Window(), 1000.0
    times = []
    for gap, latency in seen:
        now += gap
        window.add(latency, now)
        times.append((int(now), latency))
    now += later
    left = [latency for at, latency in times if at > int(now) - WINDOW_S]
    assert (window.quantiles((0.5,), now) == (None,)) == (not left)
    assert sum(window.histogram(now).values()) == len(left)
    assert (window.rate_per_s(now) > 0) == bool(left)


def test_a_rate_is_per_second() -> None:
    window = Window()
    for at in range(300):
        window.add(0.01, 100.0 + at / 10)
    assert window.rate_per_s(130.0) == pytest.approx(10.0)
    assert Window().rate_per_s(130.0) == 0.0


def test_a_clock_that_is_set_back_loses_the_future_and_nothing_else() -> None:
    window = Window()
    window.add(0.5, 5000.0)
    window.add(0.01, 1000.0)
    assert window.quantiles((1.0,), 1000.0)[0] == pytest.approx(0.01, rel=0.02)


def test_extremes_have_a_place() -> None:
    window = Window()
    for latency in (0.0, 1e-9, 1e9):
        window.add(latency, 0.0)
    least, most = window.quantiles((0.0, 1.0), 0.0)
    assert least == 1e-5
    assert most is not None
    assert most > 400


def test_goodput_is_the_rate_within_an_objective() -> None:
    window = Window()
    assert window.within_per_s(1.0, 100.0) == 0.0
    for at in range(10):
        for latency in (0.1, 0.1, 0.5):
            window.add(latency, 100.0 + at)
    assert window.rate_per_s(110.0) == pytest.approx(3.0)
    assert window.within_per_s(0.2, 110.0) == pytest.approx(2.0)
    assert window.within_per_s(0.01, 110.0) == 0.0
    assert window.within_per_s(1.0, 110.0) == window.rate_per_s(110.0)
    assert window.within_per_s(1.0, 300.0) == 0.0, "of the last minute only"


def test_a_batch_is_counted_once_and_its_requests_each() -> None:
    stats = Stats("m", "1")
    stats.executed(5, 3, Times(0.1, 0.2, 0.3, 0.6))
    for _ in range(3):
        stats.answered(1.0, 0.4, now=50.0)
    stats.failed(2.0, now=60.0)
    stats.refused(0.5, "late")
    assert stats.causes == {"late": 1}
    assert (stats.inferences, stats.executions, stats.last_at) == (5, 1, 60.0)
    counts = (stats.success, stats.fail, stats.rejected, stats.queue, stats.compute_input, stats.compute_infer)
    assert [one.count for one in counts] == [3, 1, 1, 3, 3, 3]
    assert stats.compute_infer.total_s == pytest.approx(0.6)
    assert [(size, one.count, one.total_s) for size, one in stats.batches.items()] == [(5, 1, 0.2)]
    assert stats.busy_s == 0.2
