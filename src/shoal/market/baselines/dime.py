"""The strategies of "Analysis and Exploitation of Dynamic Pricing in the Public Cloud for ML Training" (DISPA'20), as
its notebook computes them.

A price is valid on the day (UTC) of its change, and of several on one day the newest is found first. A job is worth a
number of days of one V100. Instances are charged by accelerator, as if other jobs filled the rest, and moves are free.
Two defects are kept unless `Defects` says otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from shoal.core import Invalid
from shoal.market.feeds import AWS, AZURE
from shoal.market.history import History

STRATEGIES = ("baseline", "gpu_type", "packed", "multi_cloud", "dynamic")
Speeds = Mapping[str, Mapping[str, float]]
"""Steps per second by accelerator and model."""

_DAY_S = 86_400
_AZURE_ORDER = [(kind, count) for kind in ("v100", "p100", "k80") for count in (1, 2, 4)]
_AZURE_NAMES = {kind: name for name, kind in AZURE.items()}
"""The last instance type with this number of accelerators, where there are two."""


@dataclass(frozen=True, slots=True)
class Defects:
    """What the notebook does and hardly means: `azure_whole` ranks instances of Azure by the price of the whole
    instance but charges by accelerator; `past_the_end` charges work after the last day of data at the last price."""

    azure_whole: bool = True
    past_the_end: bool = True


PUBLISHED = Defects()


@dataclass(frozen=True, slots=True)
class _Choice:
    instance: str
    place: str
    accelerator: str
    count: int
    usd: float


class DailyPrices:
    """Prices by instance type and day."""

    def __init__(self, history: History) -> None:
        self._found: dict[tuple[str, int], list[tuple[float, str, float]]] = defaultdict(list)
        for offer, track in history.tracks.items():
            if track.prices is not None:
                place = offer.zone or offer.region
                for at, usd in zip(track.prices.at_s, track.prices.usd, strict=True):
                    self._found[offer.instance, int(at // _DAY_S)].append((float(at), place, float(usd)))
        for changes in self._found.values():
            changes.sort(key=lambda change: -change[0])
        self.days = sorted({day for instance, day in self._found if instance == "p3.2xlarge"})
        if len(self.days) < 36:
            raise Invalid("the published table needs 36 days of p3.2xlarge", hint=f"there are {len(self.days)}")

    def on(self, instance: str, day: int) -> Sequence[tuple[float, str, float]]:
        return self._found.get((instance, day), ())


def cost(
    prices: DailyPrices, speeds: Speeds, model: str, strategy: str, start: int, days: float, defects: Defects
) -> float | None:
    """Dollars of a job from the day `start` on; None where the data end first and `past_the_end` is mended."""
    work = _DAY_S * days * speeds["v100"][model]
    done, spent, day = 0.0, 0.0, start
    choice = _choose(prices, speeds, model, strategy, day, defects)
    while done < work and day < prices.days[-1]:
        day += 1
        speed = speeds[choice.accelerator][model]
        if work - done <= speed * _DAY_S:
            break
        done += speed * _DAY_S
        spent += 24 * choice.usd / choice.count
        if strategy == "dynamic":
            choice = _choose(prices, speeds, model, strategy, day, defects)
        else:
            now = [usd for _, place, usd in prices.on(choice.instance, day) if place == choice.place]
            if now:
                choice = _Choice(choice.instance, choice.place, choice.accelerator, choice.count, now[0])
    else:
        if not defects.past_the_end:
            return None
    return spent + (work - done) / (3600 * speeds[choice.accelerator][model]) * choice.usd / choice.count


def _choose(prices: DailyPrices, speeds: Speeds, model: str, strategy: str, day: int, defects: Defects) -> _Choice:
    aws = list(AWS)[:6]  # the six types of the paper
    if strategy == "baseline":
        aws = ["p3.2xlarge"]
    elif strategy == "gpu_type":
        aws = ["p2.xlarge", "p3.2xlarge"]
    candidates = [(name, *AWS[name], AWS[name][1]) for name in aws]
    if strategy in ("multi_cloud", "dynamic"):
        candidates += [
            (_AZURE_NAMES[kind], *kind, 1 if defects.azure_whole else kind[1]) for kind in _AZURE_ORDER
        ]  # fmt: skip
    best, found = 0.0, None
    for name, accelerator, count, sharing in candidates:
        for _, place, usd in prices.on(name, day):
            worth = speeds[accelerator][model] / (usd / sharing)
            if worth > best:
                best, found = worth, _Choice(name, place, accelerator, count, usd)
    if found is None:
        raise Invalid(f"no price is known on day {day}")
    return found


def table(
    history: History, speeds: Speeds, models: Sequence[str], days: float, defects: Defects = PUBLISHED
) -> dict[str, dict[str, float]]:
    """Mean dollars over the thirty starting days of the notebook, by strategy and model. Days that some strategy cannot
    be charged for are left out for all."""
    prices = DailyPrices(history)
    found: dict[str, dict[str, float]] = {strategy: {} for strategy in STRATEGIES}
    for model in models:
        rows = [
            [cost(prices, speeds, model, strategy, day, days, defects) for strategy in STRATEGIES]
            for day in prices.days[-35:-5]
        ]
        whole = [[usd for usd in row if usd is not None] for row in rows if None not in row]
        if not whole:
            raise Invalid(f"the data end before any job of {days:g} days")
        for strategy, costs in zip(STRATEGIES, zip(*whole, strict=True), strict=True):
            found[strategy][model] = fmean(costs)
    return found
