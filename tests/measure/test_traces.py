"""Recorded arrivals: both formats, rescaling, and errors that name file and line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid, NotFound
from shoal.measure.load.traces import Trace, parse_trace, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:17:03.9799600,4808,10\r
2023-11-16 18:17:04.0319600,3180,8\r
2023-11-16 18:17:04.0781490,110,27\r
2023-11-16 18:17:05.9799600,7433,14\r
"""


def test_azure_traces_as_they_are_published(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\ufeff" + AZURE, encoding="utf-8")
    trace = read_trace(path)
    assert trace.times_s == pytest.approx([0.0, 0.052, 0.098189, 2.0], abs=2e-6)
    assert trace.rate_per_s == pytest.approx(1.5)


def test_the_newer_azure_format_has_a_zone_and_may_be_out_of_order() -> None:
    lines = [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2024-05-10 00:00:02.009930+00:00,2,20",
        "2024-05-10 02:00:01.009930+02:00,1,10",
    ]
    trace = parse_trace(lines, name="t")
    assert trace.times_s.tolist() == [0.0, 1.0]


def test_a_csv_with_times_only_and_a_plain_file() -> None:
    assert parse_trace(["TIMESTAMP", "2023-01-01 00:00:00", "2023-01-01 00:00:03"], name="t").duration_s == 3.0
    plain = parse_trace(["# seconds", "", "10.5", " 12 ", "11"], name="t")
    assert plain.times_s.tolist() == [0.0, 0.5, 1.5]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "t: the trace is empty"),
        (["# nothing", ""], "t: the trace is empty"),
        (["TIMESTAMP"], "t: the trace has a header but no arrivals"),
        (["1.0", "# a remark", "two"], "t:3: 'two' is not a number of seconds"),
        (["1.0", "nan"], "t:2: 'nan' is not a number"),
        (["TIMESTAMP,ContextTokens", "2023-01-01 00:00:00,1", "yesterday,1"], "t:3: 'yesterday' is not a moment"),
        (["TIMESTAMP,ContextTokens", "2023-01-01 00:00:00"], "t:2: there are 1 fields instead of 2"),
    ],
)
def test_errors_name_the_line(lines: list[str], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_trace(lines, name="t")
    assert str(caught.value).startswith(words)


def test_a_missing_or_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.csv"):
        read_trace(tmp_path / "nowhere.csv")
    (tmp_path / "image.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(Invalid, match="cannot be read"):
        read_trace(tmp_path / "image.csv")


TRACES = st.lists(st.integers(0, 1_000_000), min_size=2, max_size=200, unique=True).map(
    lambda times: parse_trace([repr(one / 1000) for one in times], name="t")
)


@settings(max_examples=50, deadline=None)
@given(TRACES, st.floats(0.01, 1000.0))
def test_a_faster_trace_is_the_same_in_less_time(trace: Trace, factor: float) -> None:
    faster = trace.faster(factor)
    assert faster.times_s * factor == pytest.approx(trace.times_s)
    assert faster.duration_s * factor == pytest.approx(trace.duration_s)


@settings(max_examples=50, deadline=None)
@given(TRACES, st.floats(1.0, 30.0), st.integers(0, 1000))
def test_a_denser_trace_keeps_its_arrivals_its_order_and_its_span(trace: Trace, factor: float, seed: int) -> None:
    denser = trace.at_rate(trace.rate_per_s * factor, seed=seed)
    assert (np.diff(denser.times_s) >= 0).all()
    assert set(trace.times_s.tolist()) <= set(denser.times_s.tolist())
    assert denser.duration_s == trace.duration_s
    assert int(factor) * len(trace.times_s) <= len(denser.times_s) <= (int(factor) + 1) * len(trace.times_s)


def test_rates_are_met() -> None:
    rng = np.random.default_rng(1)
    times = np.sort(rng.random(20_000) * 1000)
    trace = Trace(times - times[0])
    for rate in (1.0, 7.5, 20.0, 50.0):
        assert trace.at_rate(rate, seed=2).rate_per_s == pytest.approx(rate, rel=0.05)


def test_what_cannot_be_scaled_is_refused() -> None:
    trace = parse_trace(["1", "1"], name="t")
    with pytest.raises(Invalid, match="one moment"):
        trace.at_rate(5.0, seed=1)
    with pytest.raises(Invalid, match="0 times as fast"):
        trace.faster(0.0)
    with pytest.raises(Invalid, match="not a rate"):
        trace.at_rate(-1.0, seed=1)
