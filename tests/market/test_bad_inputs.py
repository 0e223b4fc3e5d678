"""Files and options that are wrong: one sentence with the file, the line where there is one, and what is meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from shoal.cli.app import app
from shoal.core import Invalid
from shoal.forecast.commands.inputs import rows_of
from shoal.market.commands.output import read_speeds, read_steps
from shoal.market.feeds import read
from shoal.market.live.settings import read_file

NAME = "availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json"
JOB = ["--work", "6", "--on-demand", "3", "--spot-price", "1"]
AWS = "availability_zone,instance_type,timestamp,usd_per_hour"
SPEED = "kind,model,flops,parameters,tensors,seconds"


def call(*words: object) -> tuple[int, str]:
    """The exit code and what was said; a traceback fails the test."""
    result = CliRunner().invoke(app, [*map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


def refused(*words: object) -> str:
    code, said = call(*words)
    assert code == 2, said
    return said


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1] * 200}))
    return path


@pytest.mark.parametrize("speed", ["0", "-1", "NaN", "Infinity", "null", '"fast"'])
def test_speeds_that_are_no_positive_numbers(trace: Path, tmp_path: Path, speed: str) -> None:
    (path := tmp_path / "speeds.txt").write_text(f'{{"v100": {speed}}}')
    said = refused("market", "plan", trace, *JOB, "--deadline", 9, "--speeds", path)
    assert "speeds.txt" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--work", "inf", "--deadline", "9"], "work must be positive and finite"),
        (["--deadline", "inf"], "deadline must be positive and finite"),
        (["--deadline", "9", "--launch", "inf"], "launch must be 0 or more and finite"),
        (["--deadline", "9", "--start", "inf"], "no time"),
        (["--deadline", "9", "--tick", "inf"], "a tick must be positive"),
        (["--deadline", "9", "--on-demand", "0"], "a price must be positive"),
        (["--deadline", "9", "--spot-price", "inf"], "a price must be positive"),
        (["--deadline", "9", "--data-home", "nowhere"], "no offer is in region 'nowhere'"),
    ],
)
def test_options_that_make_no_sense(trace: Path, words: list[str], said: str) -> None:
    assert said in refused("market", "simulate", trace, *JOB, *words)


def test_a_gang_that_spot_can_never_serve_is_told(trace: Path) -> None:
    code, said = call("market", "plan", trace, *JOB, "--deadline", 9, "--nodes", 5)
    assert code == 0
    assert "never had 5 at once" in said


@pytest.mark.parametrize(
    ("gap", "data", "said"),
    [
        ("NaN", "[1]", "a positive gap"), ("0", "[1]", "a positive gap"), ("600", "[]", "one number for each"),
        ("600", "[1, 0.4]", "moment 1 has 0.4 instances"), ("600", "[-3]", "moment 0 has -3 instances"),
        ("600", "[NaN]", "moment 0 has nan"), ("600", '"x"', "cannot be read"),
    ],
)  # fmt: skip
def test_traces_with_odd_numbers(trace: Path, gap: str, data: str, said: str) -> None:
    trace.write_text(f'{{"metadata": {{"gap_seconds": {gap}}}, "data": {data}}}')
    assert said in refused("market", "history", trace)


def test_json_of_too_many_levels(trace: Path) -> None:
    trace.write_text("[" * 100_000)
    assert "too many levels" in refused("market", "history", trace)


@pytest.mark.few(count=2)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("us-east-1a,p3.2xlarge,2020-01-01T00:00:00,-1", "a price of -1 dollars"),
        ("us-east-1a,p3.2xlarge,2020-01-01T00:00:00,0", "a price of 0 dollars"),
        ("us-east-1a,p3.2xlarge,2020-01-01T00:00:00,None", "could not convert"),
        ("us-east-1a,p3.2xlarge,yesterday,1", "yesterday"),
        ("us-east-1a,p3.2xlarge", "not as many cells"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    good = "us-east-1a,p3.2xlarge,2020-01-01T00:00:00,0.9"
    (path := tmp_path / "prices.csv").write_text("\n".join([AWS, good, line, good]))
    answer = refused("market", "history", path)
    assert said in answer
    assert "prices.csv:3" in answer
    assert "hint" in answer


def test_unknown_types_are_the_reason_why_nothing_is_left(tmp_path: Path) -> None:
    (path := tmp_path / "prices.csv").write_text(f"{AWS}\nus-east-1a,p9.xlarge,2020-01-01T00:00:00,0.9\n")
    assert "unknown instance types were left out: p9.xlarge" in refused("market", "history", path)


@pytest.mark.few
@pytest.mark.parametrize("number", ["0", "-1", "0.5"])
def test_an_instance_has_accelerators(tmp_path: Path, number: str) -> None:
    columns = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region"
    (path := tmp_path / "vms.csv").write_text(f"{columns}\nx,V100,{number},3,1,r\n")
    assert f"an instance of {number} accelerators" in refused("market", "history", path)


@pytest.mark.parametrize("text", ['{"v100": {"A3C"', "[]", '{"v100": {}}', '{"v100": {"(\'A3C\', 4)": {"null": 3}}}'])
def test_steps_of_another_shape(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "oracle.json").write_text(text)
    said = refused("market", "published", Path(__file__).parent / "data", "--speeds", path)
    assert "oracle.json" in said


@pytest.mark.parametrize("command", [["fit", "speed"], ["fit", "lifetime"], ["bottleneck"]])
def test_tables_that_are_no_text_or_have_no_line(tmp_path: Path, command: list[str]) -> None:
    path, out = tmp_path / "table.csv", tmp_path / "model.json"
    more = ["--out", out] if command[0] == "fit" else []
    path.write_bytes(bytes(range(256)))
    assert "is not text" in refused("forecast", *command, path, *more)
    columns = {"speed": SPEED, "lifetime": "kind,region,lifetime_s,revoked", "bottleneck": "step_s"}[command[-1]]
    path.write_text(columns + "\n")
    assert "has no measurements" in refused("forecast", *command, path, *more)
    assert not out.exists()


def test_one_network_has_one_set_of_features(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"{SPEED}\nk80,net,1e9,1e6,30,0.1\nk80,net,2e9,1e6,30,0.1\n")
    said = refused("forecast", "fit", "speed", path, "--out", tmp_path / "model.json")
    assert "two sets of features" in said
    assert "table.csv:3" in said


def test_a_market_file_that_is_no_text(tmp_path: Path) -> None:
    (path := tmp_path / "market.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Invalid, match="is not text"):
        read_file(path)


CELLS = st.sampled_from(
    ["", "0", "1", "-1", "0.4", "nan", "inf", "1e400", "x", "2020-01-01", "\u20ac1", '"', "{", "[", "v100"]
)
HEADS = st.sampled_from([
    AWS, "timestamp,zone,gpu,gpus,usd_per_hour", "Date,NC6", SPEED, "kind,region,lifetime_s,revoked", "step_s", "a,b",
    "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region",
])  # fmt: skip
TABLES = st.builds(
    lambda head, lines: "\n".join([head, *(",".join(line) for line in lines)]).encode(),
    HEADS, st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=4),
)  # fmt: skip
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 0.4, float("nan"), float("inf"), 10**400, "x", "v100"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["metadata", "gap_seconds", "data", "SpotPriceHistory", "v100", "p100", "k80", "A3C"]), inner,
        max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip
FILES = st.binary(max_size=40) | TABLES | VALUES.map(lambda value: json.dumps(value).encode())


def readers(folder: Path, contents: bytes) -> Iterator[Callable[[], object]]:
    for name in (NAME, "prices.csv", "vms.csv"):
        (path := folder / name).write_bytes(contents)
        yield lambda path=path: read(path)  # type: ignore[misc]
    for reader in (read_speeds, read_steps):
        yield lambda reader=reader: reader(path)  # type: ignore[misc]
    for columns in (SPEED, "step_s"):
        yield lambda columns=columns: list(rows_of(path, *columns.split(",")))  # type: ignore[misc]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES)
def test_no_file_makes_a_traceback(tmp_path: Path, contents: bytes) -> None:
    for reader in readers(tmp_path, contents):
        with suppress(Invalid):
            reader()
