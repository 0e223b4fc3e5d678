"""`shoal market` as a user calls it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal.cli.app import app

DATA = Path(__file__).parent / "data"
JOB = ["--work", "6", "--on-demand", "3"]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for zone, away in (("us-east-1a", 7), ("us-east-1c", 11)):
        name = f"availability_1-node_aws-02-15-2023_{zone}_v100_1.json"
        counts = [int(tick % 40 >= away) for tick in range(400)]
        (tmp_path / name).write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": counts}))
    return tmp_path


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["market", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_offers_and_history() -> None:
    rows = json.loads(call("offers", DATA, "--accelerator", "v100", "--json"))
    assert rows == sorted(rows, key=lambda row: (row["usd_per_accelerator_hour"], row["offer"]))
    assert {row["provider"] for row in rows} == {"aws", "azure"}
    found = json.loads(call("history", DATA, "--region", "us-east-1a", "--json"))
    assert {row["offer"].split("/")[1] for row in found["offers"]} == {"us-east-1a"}
    assert "OFFER" in call("history", DATA)


def test_the_published_table() -> None:
    rows = json.loads(call("published", DATA, "--speeds", DATA.parent / "speeds.json", "--json"))
    [dynamic] = [row for row in rows if row["strategy"] == "dynamic" and row["model"] == "A3C"]
    assert round(dynamic["ratio"], 2) == 3.53


@pytest.mark.slow
def test_the_published_table_reads_speeds_beside_others_too(tmp_path: Path) -> None:
    speeds = json.loads((DATA.parent / "speeds.json").read_text())
    beside = {kind: {model: {"null": one} for model, one in by.items()} for kind, by in speeds.items()}
    (path := tmp_path / "beside.json").write_text(json.dumps(beside))
    [first, second] = [
        call("published", DATA, "--speeds", one, "--json") for one in (DATA.parent / "speeds.json", path)
    ]
    assert first == second


def test_simulate_compare_plan_and_explain(traces: Path) -> None:
    page = traces / "page.html"
    words = [traces, *JOB, "--spot-price", 1]
    row = json.loads(call("simulate", *words, "--deadline", 9, "--plot", page, "--json"))
    assert row["optimum_usd"][0] <= row["usd"]
    assert row["finish_h"] <= 9
    assert "Simulated" in page.read_text()
    rows = json.loads(call("compare", *words, "--starts", 3, "--deadlines", "1.2,1.6", "--plot", page, "--json"))
    assert {(row["deadline"], row["policy"]) for row in rows} == {
        (factor, name) for factor in (1.2, 1.6) for name in ("greedy", "uniform-progress", "markov")
    }
    assert all(row["missed"] == 0 and row["low"] <= row["ratio"] <= row["high"] for row in rows)
    planned = json.loads(call("plan", *words, "--deadline", 9, "--learn", traces, "--json"))
    assert planned["offer"].startswith("aws/us-east-1")
    tried = planned["replayed"]
    assert tried["met"] == tried["starts"] == 20
    assert tried["usd"]["p10"] <= tried["usd"]["p50"] <= tried["usd"]["p90"] < tried["all_on_demand_usd"]
    assert "eight of ten" in call("plan", *words, "--deadline", 9)
    assert "no replays" in call("plan", *words, "--deadline", 200)
    why = json.loads(call("explain", *words, "--deadline", 9, "--json"))
    assert [one["price"] for one in why] == [1.0, 1.2, 1.5, 2.0]
    assert why[0]["text"]


@pytest.mark.slow
def test_a_plan_knows_the_whole_history(tmp_path: Path) -> None:
    expected = {}
    for zone, counts in (("us-east-1a", [1] * 400), ("us-east-1c", [int(t % 8 > 3) for t in range(400)])):
        name = f"availability_1-node_aws-02-15-2023_{zone}_v100_1.json"
        (tmp_path / name).write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": counts}))
        words = ["plan", tmp_path / name, *JOB, "--spot-price", 1, "--deadline", 9, "--json"]
        planned = json.loads(call(*words))
        expected[zone] = planned["facts"]["spot"]
        assert planned["offer"] == f"aws/{zone}/v100-x1"
        assert expected[zone] == pytest.approx(planned["replayed"]["usd"]["p50"], rel=0.25)
        why = json.loads(call("explain", *words[1:]))
        assert why[0]["facts"] == planned["facts"]
    assert expected["us-east-1a"] < expected["us-east-1c"]
    assert expected["us-east-1a"] == pytest.approx(6.17, abs=0.15)


def test_a_plan_of_months_says_its_error(traces: Path) -> None:
    words = [traces, "--work", 5000, "--on-demand", 3, "--spot-price", 1, "--deadline", 7000]
    planned = json.loads(call("plan", *words, "--json"))
    assert planned["facts"]["error"] >= 0.01
    assert planned["facts"]["step_h"] > 1
    assert planned["replayed"] is None


@pytest.mark.slow
def test_launches_fail_and_speeds_differ(traces: Path) -> None:
    words = ["simulate", traces, *JOB, "--spot-price", 1, "--deadline", 9, "--json"]
    failing = json.loads(call(*words, "--refused", 0.5, "--retries", 2))
    assert failing["refusals"] > 0
    assert failing["finish_h"] <= 9
    (traces / "speeds.txt").write_text('{"V100": 2}')
    assert json.loads(call(*words, "--speeds", traces / "speeds.txt"))["finish_h"] < 5
    kept = json.loads(call(*words, "--state-gb", 100))
    assert kept["storage_usd"] == pytest.approx(2.3 * kept["finish_h"] / 730)
    assert "launches that failed" in call(*words[:-1])


@pytest.mark.slow
def test_instances_of_several_accelerators(tmp_path: Path) -> None:
    for number, count in ((1, 8), (8, 8)):
        name = f"availability_1-node_aws-02-15-2023_us-east-1a_v100_{number}.json"
        (tmp_path / name).write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [0] * 30 + [count] * 120}))
    eight = tmp_path / "availability_1-node_aws-02-15-2023_us-east-1a_v100_8.json"
    words = ["--work", 4, "--deadline", 5, "--start", 0, "--json"]
    row = json.loads(call("simulate", eight, "--on-demand", 3, "--spot-price", 1, *words, "-p", "cheapest"))
    assert [move["offer"] for move in row["moves"]] == ["aws/us-east-1/v100-x8/on-demand"]
    assert row["usd"] == pytest.approx(25 / 6 * 24)  # a launch, and four hours of eight accelerators
    catalogue = tmp_path / "aws" / "vms.csv"
    catalogue.parent.mkdir()
    catalogue.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region,AvailabilityZone\n"
        "p3.2xlarge,V100,1,3.06,0.9,us-east-1,us-east-1a\np3.16xlarge,V100,8,24,7,us-east-1,us-east-1a\n"
    )
    speeds = tmp_path / "speeds.txt"
    speeds.write_text('{"v100": 1, "v100:8": 4}')
    given = [tmp_path, catalogue, *words, "--speeds", speeds]
    row = json.loads(call("simulate", *given, "-p", "greedy"))
    assert {move["offer"] for move in row["moves"]} <= {
        None, "aws/us-east-1a/p3.2xlarge", "aws/us-east-1a/p3.16xlarge", "aws/us-east-1a/p3.16xlarge/on-demand"
    }  # fmt: skip
    assert row["moves"][0]["offer"] is None  # the trace of the catalogue's spot instances says that there are none
    planned = json.loads(call("plan", tmp_path, catalogue, "--work", 8, "--deadline", 20, "--speeds", speeds, "--json"))
    assert planned["offer"] == "aws/us-east-1a/p3.2xlarge"
    assert planned["replayed"]["all_on_demand_usd"] == pytest.approx(3.06 * 49 / 6)
    assert "give --on-demand" in call("plan", eight, "--work", 4, "--deadline", 5, "--spot-price", 1, code=2)
    assert "speeds of v100, v100:8 are not given" in call("plan", tmp_path, catalogue, "--work", 4, "--deadline", 6)


def test_tariffs_say_what_was_not_verified() -> None:
    rows = json.loads(call("tariffs", "--json"))
    assert {row["what"] for row in rows} == {"region", "internet", "storage"}
    assert any(row["checked"] is None for row in rows)
    assert "not verified" in " ".join(call("tariffs").split())


@pytest.mark.few(count=4)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate", *JOB, "--deadline", "9"], "has no prices"),
        (["simulate", *JOB, "--deadline", "9", "--spot-price", "1", "-p", "nonsense"], "no policy is called"),
        (["simulate", *JOB, "--deadline", "900", "--spot-price", "1"], "ticks before the deadline"),
        (["plan", *JOB, "--deadline", "5", "--spot-price", "1"], "6 h of work cannot end within 5 h"),
        (["simulate", *JOB, "--deadline", "6.1", "--spot-price", "1"], "the fastest offer needs 6.2 h"),
        (["explain", *JOB, "--deadline", "6", "--spot-price", "1"], "the fastest offer needs 6.2 h"),
        (["compare", *JOB, "--deadlines", "0.5", "--spot-price", "1"], "no schedule ends"),
        (["compare", *JOB, "--deadlines", "x", "--spot-price", "1"], "numbers separated by commas"),
        (["simulate", *JOB, "--deadline", "9", "--spot-price", "1", "--speeds", "."], "is a directory"),
        (["offers"], "has no prices"),
        (["history", "--region", "nowhere"], "no offer is left"),
    ],
)
def test_what_cannot_be_done_is_said(traces: Path, words: list[str], said: str) -> None:
    assert said in " ".join(call(words[0], traces, *words[1:], code=2).split())
