"""From a job and the listed offers to a market."""

from __future__ import annotations

from typing import ClassVar

import pytest

from shoal.core import ANY, Estimate, Invalid, Resources
from shoal.market.history import Offer
from shoal.market.live.deciding import Fit, Held, decide, fits, market_of, speeds_by_kind, up_of, view_of
from shoal.market.live.provider import Listing, Quote
from shoal.market.policy.view import Decision, View
from shoal.market.tables import egress_usd_per_gb
from shoal.market.ticks import Job

GIB = 1 << 30
FITS = [
    Fit(Listing(Offer("aws", "us-east-1", "us-east-1a", "p3.2xlarge", "v100", spot=spot), usd, 8, 61 * GIB), 1, 1)
    for spot, usd in ((True, 1.0), (False, 3.0))
]


@pytest.mark.parametrize(("launch_s", "ticks"), [(0.0, 0), (600.0, 1), (601.0, 2), (1800.0, 3), (0.3, 1)])
def test_a_launch_takes_whole_ticks(launch_s: float, ticks: int) -> None:
    assert market_of(FITS, Job(3600.0, 7 * 3600.0, launch_s, 0.0), 600.0, {}).launch == ticks


def test_rounding_does_not_add_a_tick() -> None:
    assert market_of(FITS, Job(3600.0, 7 * 3600.0, 3 * 0.1, 0.0), 0.1, {}).launch == 3


def test_a_deadline_that_no_offer_keeps_is_refused() -> None:
    with pytest.raises(Invalid, match="4 h of work cannot end within 1 h"):
        market_of(FITS, Job(4 * 3600.0, 3600.0, 600.0, 0.0), 600.0, {})
    assert market_of(FITS, Job(4 * 3600.0, 3600.0, 600.0, 0.0), 600.0, {"v100": 5.0}).deadline == 6


LISTING = Listing(Offer("aws", "us-east-1", "us-east-1a", "p3.8xlarge", "v100", 4, spot=False), 12.0, 32, 244 * GIB)


def asked(cpu_milli: int = 0, memory_bytes: int = 0, **accelerators: int) -> Resources:
    return Resources(accelerators, cpu_milli, memory_bytes)


@pytest.mark.parametrize(
    ("resources", "ranks", "found"),
    [
        (asked(v100=1), 4, (1, 4)),
        (asked(v100=1), 5, (2, 4)),
        (asked(v100=1), 2, (1, 2)),
        (asked(v100=3), 2, (2, 1)),
        (asked(**{ANY: 4}), 3, (3, 1)),
        (asked(16_000, v100=1), 3, (2, 2)),
        (asked(16_001, v100=1), 3, (3, 1)),
        (asked(0, 122 * GIB, v100=1), 3, (2, 2)),
        (asked(0, 122 * GIB + 1, v100=1), 3, (3, 1)),
        (asked(32_001, v100=1), 1, None),
        (asked(0, 244 * GIB + 1, v100=1), 1, None),
        (asked(v100=5), 1, None),
        (asked(k80=1), 1, None),
        (asked(), 1, None),
        (asked(v100=1, k80=1), 1, None),
    ],
)
def test_an_instance_holds_as_many_ranks_as_its_scarcest_part(
    resources: Resources, ranks: int, found: tuple[int, int] | None
) -> None:
    fit = [(one.instances, one.ranks_each) for one in fits([LISTING], resources, ranks)]
    assert fit == ([] if found is None else [found])


def test_several_instances_cost_as_many_prices() -> None:
    assert fits([LISTING], asked(v100=4), 3)[0].usd_per_hour == 36.0


def test_a_market_counts_in_ticks() -> None:
    work = Job(3600.0, 7 * 3600.0 + 599.0, 0.0, 300.0, state_gb=10.0, data_gb=30.0, home="eu-west-1")
    found = market_of(FITS, work, 600.0, {"v100": 2.0})
    assert (found.work, found.deadline, found.lost) == (6.0, 42, 0.5)
    assert found.speed.tolist() == [2.0, 2.0]
    assert found.usd.tolist() == [[1 / 6, 0.5]]
    each = egress_usd_per_gb("aws", "eu-west-1", FITS[0].listing.offer)
    assert each > 0
    assert found.launch_usd.tolist() == pytest.approx([40 * each] * 2)
    assert not market_of(FITS, Job(3600.0, 7 * 3600.0, 0.0, 0.0), 600.0, {}).launch_usd.any()
    assert market_of(FITS, Job(60.0, 100.0, 0.0, 0.0), 600.0, {}).deadline == 1, "a tick at least"


def test_work_that_ends_with_the_deadline_is_taken() -> None:
    assert market_of(FITS, Job(3600.0, 4200.0, 600.0, 0.0), 600.0, {}).deadline == 7
    with pytest.raises(Invalid, match=r"needs 1\.2 h"):
        market_of(FITS, Job(3600.0, 4199.0, 600.0, 0.0), 600.0, {})


class Never:
    """A policy that must not be asked."""

    def decide(self, view: View) -> Decision:
        raise AssertionError(view)


class Known:
    """Speeds with intervals, in steps per second."""

    rates: ClassVar = {"v100": (8.0, 10.0), "k80": (1.0, 2.0), "odd": (0.0, 1.0)}

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        if kind not in self.rates:
            return None
        low, median = self.rates[kind]
        return Estimate(median, low, 2 * median, 0.9, "a test")


def test_the_lower_end_of_a_speed_counts() -> None:
    assert speeds_by_kind(Known(), "j", ["v100", "k80", "odd", "new"], "v100") == {"v100": 0.8, "k80": 0.1}
    assert speeds_by_kind(Known(), "j", ["v100"], "new") == {}


def quoted(usd: float = 0.5, available: bool = True) -> Quote:
    return Quote(FITS[0].listing.offer, usd, available)


def test_on_demand_is_there_and_spot_where_it_is_quoted_and_was_not_refused() -> None:
    market, name = market_of(FITS, Job(3600.0, 7 * 3600.0, 0.0, 0.0), 600.0, {}), FITS[0].name
    assert up_of(market, []).tolist() == [False, True]
    assert up_of(market, [quoted()]).tolist() == [True, True]
    assert up_of(market, [quoted(available=False)]).tolist() == [False, True]
    assert up_of(market, [quoted()], [name]).tolist() == [False, True]
    assert up_of(market, [quoted()], [FITS[1].name]).tolist() == [True, True]


def test_a_view_counts_in_ticks_from_the_submission_and_from_the_launch() -> None:
    market = market_of(FITS, Job(3600.0, 7 * 3600.0, 1800.0, 0.0), 600.0, {})
    seen = [up_of(market, []), up_of(market, [quoted()])]

    def view(held: Held | None, *, usd: float = 0.6, elapsed_s: float = 1250.0, work_s: float = 900.0) -> View:
        return view_of(market, FITS, [quoted(usd)], seen, held, work_s=work_s, elapsed_s=elapsed_s, now=10_000.0)

    alone = view(None)
    assert (alone.tick, alone.work, alone.running, alone.launching, alone.age) == (2, 1.5, None, 0, 0)
    assert alone.usd.tolist() == pytest.approx([0.1, 0.5])
    assert view(None, usd=9.0).usd.tolist() == pytest.approx([1 / 6, 0.5]), "never above the most that is paid"
    assert alone.up.tolist() == [True, True]
    starts = view(Held(FITS[0].name, 9_300.0, ready=False))
    assert (starts.running, starts.launching, starts.age) == (0, 2, 1)
    assert view(Held(FITS[0].name, 1_000.0, ready=False)).launching == 0
    works = view(Held(FITS[1].name, 8_700.0, ready=True))
    assert (works.running, works.launching, works.age) == (1, 0, 2)
    assert view(Held("gone", 9_300.0, ready=True)).running is None
    assert view(None, elapsed_s=1e9).tick == market.deadline
    assert view(None, work_s=0.0).work == 1e-6


def test_after_the_deadline_the_fallback_runs_until_the_work_is_done() -> None:
    market = market_of(FITS, Job(3600.0, 7 * 3600.0, 0.0, 0.0), 600.0, {})
    late = view_of(market, FITS, [], [up_of(market, [])], None, work_s=900.0, elapsed_s=7 * 3600.0, now=0.0)
    found = decide(late, Never())
    assert (found.offer, found.reason.code) == (market.fallback, "late")
