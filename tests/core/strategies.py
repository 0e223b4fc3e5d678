"""Hypothesis strategies of the core's values."""

from __future__ import annotations

from hypothesis import strategies as st

from shoal.core import ANY, Money, Resources

KINDS = ("a100", "h100", "cpu-slot")

amounts = st.integers(0, 1 << 40)
kinds = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 64))
capacities = st.builds(Resources, kinds, amounts, amounts)
requests = st.one_of(
    capacities, st.builds(lambda n, c, m: Resources({ANY: n}, c, m), st.integers(0, 64), amounts, amounts)
)
money = st.builds(Money, st.integers(-(10**15), 10**15))
