"""Resources are a vector space with an order; nodes and throughputs refuse nonsense."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Device, Node, Resources, Throughput
from tests.core.strategies import KINDS, capacities, kinds, requests

NOTHING = Resources()


@given(capacities, capacities, capacities)
def test_addition_is_commutative_and_associative(a: Resources, b: Resources, c: Resources) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + NOTHING == a


@given(capacities, capacities)
def test_subtraction_undoes_addition(a: Resources, b: Resources) -> None:
    assert a + b - b == a
    assert a - a == NOTHING


@given(capacities, st.integers(0, 9))
def test_multiplication_is_repeated_addition(a: Resources, times: int) -> None:
    assert a * times == sum((a for _ in range(times)), NOTHING)
    assert (a * times).accelerator_count == a.accelerator_count * times


@given(kinds, st.permutations(KINDS))
def test_equal_vectors_are_equal_whatever_their_order_and_zeros(counts: dict[str, int], order: list[str]) -> None:
    padded = Resources({kind: counts.get(kind, 0) for kind in order})
    plain = Resources(counts)
    assert padded == plain
    assert hash(padded) == hash(plain)
    assert list(padded.accelerators) == sorted(kind for kind, count in counts.items() if count)


@given(requests)
def test_values_survive_a_pickle(a: Resources) -> None:
    copy = pickle.loads(pickle.dumps(a))
    assert copy == a
    assert hash(copy) == hash(a)


@given(capacities)
def test_a_vector_cannot_be_changed(a: Resources) -> None:
    with pytest.raises(TypeError):
        a.accelerators["a100"] = 1  # type: ignore[index]


@given(st.lists(st.sampled_from(KINDS), max_size=16), st.integers(0, 1 << 20), st.integers(0, 1 << 40))
def test_a_nodes_capacity_counts_its_devices(types: list[str], cpu_milli: int, memory_bytes: int) -> None:
    devices = tuple(Device(f"d{index}", kind, index) for index, kind in enumerate(types))
    capacity = Node("n", devices, cpu_milli, memory_bytes).capacity()
    assert capacity == Resources({kind: types.count(kind) for kind in types}, cpu_milli, memory_bytes)
    assert capacity.accelerator_count == len(devices)


@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_a_throughput_keeps_what_it_is_given(per_s: float, std_per_s: float) -> None:
    throughput = Throughput(per_s, std_per_s)
    assert (throughput.per_s, throughput.std_per_s) == (per_s, std_per_s)


@pytest.mark.parametrize("per_s", [-1.0, -5e-324, math.nan, math.inf, -math.inf])
def test_a_throughput_must_be_finite_and_not_negative(per_s: float) -> None:
    with pytest.raises(ValueError, match="throughput must be finite and not negative"):
        Throughput(per_s)


@pytest.mark.parametrize("std_per_s", [-1.0, math.nan])
def test_a_deviation_cannot_be_negative(std_per_s: float) -> None:
    with pytest.raises(ValueError, match="standard deviation cannot be negative"):
        Throughput(1.0, std_per_s)
