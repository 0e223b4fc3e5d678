"""What files of others become, and what is told of what they lack."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.market.feeds import aws_json, read, read_all
from shoal.market.history import Availability, Offer, Prices

HOUR = 3600.0


def test_aws_history_keeps_linux_and_time_zones_become_utc() -> None:
    rows = [
        {"AvailabilityZone": "us-east-1a", "InstanceType": "p3.2xlarge", "ProductDescription": what,
         "SpotPrice": price, "Timestamp": stamp}
        for what, price, stamp in [
            ("Linux/UNIX", "1.00", "2020-01-01T02:00:00+02:00"), ("Linux/UNIX", "2.00", "2020-01-01T01:00:00Z"),
            ("Linux/UNIX", "2.00", "2020-01-01T01:00:00Z"), ("Windows", "9.00", "2020-01-01T01:00:00Z"),
        ]
    ]  # fmt: skip
    history = aws_json({"SpotPriceHistory": rows})
    prices = history.tracks[Offer("aws", "us-east-1", "us-east-1a", "p3.2xlarge", "v100", 1)].prices
    assert prices is not None
    assert prices.at_s.tolist() == [1577836800.0, 1577840400.0]
    assert prices.usd.tolist() == [1.0, 2.0]
    assert "1 prices of other systems" in history.notes[0]
    assert "1 duplicates" in history.notes[1]


def test_days_that_azure_lacks_are_days_without_an_offer(tmp_path: Path) -> None:
    file = tmp_path / "azure_us_east.csv"
    file.write_text("Date,NC6,NC99\n3/1/2020,$0.5,$1\n3/2/2020,,\n3/4/2020,$0.6,\n")
    history = read(file)
    [(offer, track)] = history.tracks.items()
    assert (offer.provider, offer.region, offer.accelerator) == ("azure", "us-east", "k80")
    assert track.availability is not None
    assert (track.availability.counts > 0).tolist() == [True, False, False, True]
    assert "1 days are missing" in history.notes[0]
    assert "NC99" in history.notes[1]


def test_a_catalogue_has_both_prices_and_leaves_machines_without_accelerators_out(tmp_path: Path) -> None:
    file = tmp_path / "aws.csv"
    file.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region,AvailabilityZone\n"
        "p3.2xlarge,V100,1.0,3.06,0.92,us-east-1,us-east-1a\nm5.large,,,0.1,0.05,us-east-1,us-east-1a\n"
    )
    history = read(file)
    found = {offer.spot: track.prices.at(0.0) for offer, track in history.tracks.items() if track.prices}
    assert found == {True: 0.92, False: 3.06}
    assert "1 lines without an accelerator" in history.notes[0]


def test_gcp_prices_and_traces(tmp_path: Path) -> None:
    (tmp_path / "gcp.csv").write_text(
        "timestamp,zone,gpu,gpus,usd_per_hour\n2020-02-26T17:03:53.000Z,us-west1-b,nvidia-tesla-v100,2,$1.702\n"
    )
    trace = tmp_path / "availability_4-node_aws-02-15-2023_us-east-1a_v100_1.json"
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": [4, 4, 3]}))
    history = read_all([tmp_path])
    assert {(offer.region, offer.zone, offer.accelerators) for offer in history.tracks} == {
        ("us-west1", "us-west1-b", 2), ("us-east-1", "us-east-1a", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "a,b\n1,2\n"), ("a.json", "{}"), ("a.json", "{"), ("a.json", '{"data": [1], "metadata": {}}'),
        ("azure_x.csv", "Date,NC6\n3/1/2020,€0.5\n"), ("azure_x.csv", "Date,NC6\n2020-13-01,0.5\n"), ("a.csv", ""),
        ("azure_x.csv", "Date,NC6\n3/1/2020,-1\n"),
    ],
)  # fmt: skip
def test_files_of_no_known_kind_are_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Invalid):
        read(tmp_path / name)


def test_means_of_prices_weigh_each_price_by_its_time() -> None:
    prices = Prices(np.array([0.0, 900.0]), np.array([1.0, 5.0]))
    assert prices.means(np.array([0.0, HOUR, 2 * HOUR])).tolist() == [4.0, 5.0]
    assert np.isnan(prices.means(np.array([-HOUR, 0.0, HOUR]))[0])
    assert prices.at(-1.0) is None
    assert prices.at(900.0) == 5.0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 3))
def test_availability_of_a_tick_is_that_of_all_its_samples(counts: list[int], samples: int, need: int) -> None:
    trace = Availability(0.0, 60.0, np.array(counts))
    edges = np.arange(0, len(counts) + 2 * samples, samples) * 60.0
    expected = [
        low + samples <= len(counts) and all(count >= need for count in counts[low : low + samples])
        for low in range(0, len(counts) + 2 * samples, samples)
    ][: len(edges) - 1]
    assert trace.up(edges, need).tolist() == expected


def test_the_provider_of_a_catalogue_is_its_folder(tmp_path: Path) -> None:
    columns = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region"
    for provider in ("aws", "lambda"):
        (path := tmp_path / provider / "vms.csv").parent.mkdir()
        path.write_text(f"{columns}\nx,V100,8,30,9,r\n")
        assert {offer.provider for offer in read(path).tracks} == {provider}
