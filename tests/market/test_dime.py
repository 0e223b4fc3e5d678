"""The published tables, every printed digit of every ratio."""

import json
from pathlib import Path

import pytest

from shoal.core import Invalid
from shoal.market.baselines.dime import STRATEGIES, DailyPrices, Defects, table
from shoal.market.feeds import read_all
from shoal.market.history import History

DATA = Path(__file__).parent / "data"
SPEEDS = json.loads((DATA.parent / "speeds.json").read_text())
MODELS = sorted(SPEEDS["v100"])
FOUR_DAYS = {
    "baseline": [1.00, 1.00, 1.00, 1.00, 1.00, 1.00],
    "gpu_type": [1.32, 1.00, 1.00, 1.01, 1.00, 1.00],
    "packed": [1.71, 1.08, 1.08, 1.31, 1.08, 1.11],
    "multi_cloud": [3.10, 1.54, 1.70, 2.38, 1.49, 2.36],
    "dynamic": [3.53, 1.64, 1.81, 2.76, 1.53, 3.21],
}
"""As printed: A3C, CycleGAN, LM (80), Recommendation (8192), ResNet-50 (128), Transformer (256)."""
EIGHT_DAYS = [3.72, 1.72, 1.91, 2.88, 1.58, 3.47]
"""Of `dynamic`."""


@pytest.fixture(scope="module")
def history() -> History:
    return read_all([*DATA.glob("aws_*.csv"), *DATA.glob("azure_*.csv")])


def ratios(found: dict[str, dict[str, float]], strategy: str) -> list[float]:
    return [round(found["baseline"][model] / found[strategy][model], 2) for model in MODELS]


def test_the_whole_table_of_four_days_is_the_published_one(history: History) -> None:
    found = table(history, SPEEDS, MODELS, 4)
    assert {strategy: ratios(found, strategy) for strategy in STRATEGIES} == FOUR_DAYS
    dollars = [found[strategy]["A3C"] for strategy in STRATEGIES]
    assert dollars == pytest.approx([95.52, 72.20, 55.73, 30.78, 27.08], abs=0.02)


def test_eight_days_are_the_published_ones(history: History) -> None:
    assert ratios(table(history, SPEEDS, MODELS, 8), "dynamic") == EIGHT_DAYS


def test_each_defect_can_be_mended_and_changes_the_result(history: History) -> None:
    published = table(history, SPEEDS, ["A3C"], 8)
    ranked = table(history, SPEEDS, ["A3C"], 8, Defects(azure_whole=False))
    ending = table(history, SPEEDS, ["A3C"], 8, Defects(past_the_end=False))
    assert ranked["dynamic"]["A3C"] <= published["dynamic"]["A3C"]  # charged as it is ranked, it cannot be dearer
    assert ranked["baseline"] == published["baseline"]
    assert ending["baseline"] != published["baseline"]


def test_too_short_a_history_is_refused(history: History) -> None:
    with pytest.raises(Invalid, match="36 days"):
        DailyPrices(history.only(accelerator="k80"))
