"""Token buckets: what is granted, and what is remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.base.rates import Buckets


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3)), max_size=60))
def test_no_key_gets_more_than_its_burst_and_its_rate_whatever_others_take(asked: list[tuple[str, float]]) -> None:
    buckets, now = Buckets(2.0, 5), 0.0
    granted: dict[str, int] = {"a": 0, "b": 0}
    for key, pause in asked:
        now += pause
        retry_after_s = buckets.take(key, now)
        granted[key] += not retry_after_s
        assert granted[key] <= 5 + 2.0 * now + 1e-6
        assert 0 <= retry_after_s <= 0.5
    for key in "ab":
        assert Buckets(2.0, 5).take(key, now) == 0.0


def test_keys_that_are_full_again_are_forgotten_and_others_are_not() -> None:
    buckets = Buckets(1.0, 2)
    for at in range(3):
        assert (buckets.take("greedy", 99.5) > 0) == (at == 2)
    for at in range(20_000):
        buckets.take(f"address {at}", at / 200.0)
    assert len(buckets) < 5000
    assert buckets.take("greedy", 99.9) > 0
