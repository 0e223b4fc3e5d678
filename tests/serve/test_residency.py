"""What is evicted when a model needs memory."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.serve.residency import ModelCache, Resident, make_room, worth

residents = st.lists(
    st.builds(
        Resident, st.text(min_size=1, max_size=4), st.integers(0, 1000), st.floats(0, 100), st.integers(0, 50),
        st.floats(0, 10),
    ),
    max_size=12, unique_by=lambda model: model.key,
)  # fmt: skip


@given(models=residents, wanted=st.integers(0, 2000), budget=st.integers(0, 4000), data=st.data())
def test_room_is_made_for_what_is_wanted_and_of_what_is_waited_for_last(
    models: Sequence[Resident], wanted: int, budget: int, data: st.DataObject
) -> None:
    waited_for = data.draw(st.sets(st.sampled_from([model.key for model in models]))) if models else set()
    evicted = make_room(models, wanted, budget, waited_for)
    assert len({*evicted}) == len(evicted)
    left = [model for model in models if model.key not in evicted]
    assert sum(model.bytes for model in left) + wanted <= budget or not left
    for model in models:  # nobody is evicted without need
        if model.key in evicted and left:
            assert sum(one.bytes for one in left) + wanted + model.bytes > budget
    if waited_for & {*evicted}:
        assert sum(model.bytes for model in models if model.key in waited_for) + wanted > budget


@given(models=residents)
def test_what_fits_evicts_nobody(models: Sequence[Resident]) -> None:
    assert make_room(models, 5, sum(model.bytes for model in models) + 5) == ()


def test_gdsf_keeps_what_is_dear_often_used_and_small() -> None:
    models = [
        Resident("cheap", 100, load_s=0.1, uses=5),
        Resident("dear", 100, load_s=10.0, uses=5),
        Resident("popular", 100, load_s=0.1, uses=400),
        Resident("large", 10_000, load_s=1.0, uses=5),
    ]
    assert sorted(models, key=worth)[0].key == "large"
    assert make_room(models[:3], 100, 300) == ("cheap",)
    assert make_room(models[:3], 200, 300) == ("cheap", "popular")


def test_a_large_one_spares_the_small_ones_before_it() -> None:
    models = [Resident("small", 1, 0.0), Resident("large", 100, 1.0, uses=200)]
    assert make_room(models, 100, 101) == ("large",)


def test_one_larger_than_all_memory_may_be_alone() -> None:
    models = [Resident("a", 10, 1.0), Resident("b", 10, 1.0)]
    assert make_room(models, 1000, 20) == ("a", "b")
    assert make_room([], 1000, 20) == ()


def test_a_shelf_counts_what_is_on_it() -> None:
    cache = ModelCache()
    cache.put("a", 10, 1.0)
    cache.put("b", 20, 1.0)
    cache.put("a", 15, 1.0)  # loaded anew
    assert (cache.bytes, "a" in cache, "c" in cache) == (35, True, False)
    cache.use("a", times=3)
    cache.use("c")
    (a,) = [model for model in cache if model.key == "a"]
    assert a.uses == 3
    cache.take("a")
    assert (cache.bytes, cache.inflation) == (20, 0.0)
    cache.take("a")
    cache.evict("a")
    assert cache.bytes == 20


def test_what_was_popular_once_is_overtaken() -> None:
    cache = ModelCache()
    cache.put("once", 1, 1.0)
    cache.use("once", times=50)
    for at in range(200):
        cache.put(f"m{at}", 1, 1.0)
        cache.use(f"m{at}")
        for key in make_room([*cache], 0, 3):
            cache.evict(key)
    assert "once" not in cache
    assert cache.inflation >= 50


def total_load_s(seed: int, *, lru: bool, models: int = 200, requests: int = 4000) -> float:
    """Of a trace in which the models' popularity is Zipf's, loading is paid for by size, and a fifth fits. `lru` evicts
    the least recently used models instead."""
    rng = random.Random(seed)
    sizes = [int(10 ** rng.uniform(6, 9)) for _ in range(models)]
    loads = [0.05 + size / 1e9 * rng.uniform(0.5, 4) for size in sizes]
    rng.shuffle(names := [*range(models)])
    trace = rng.choices(names, [1 / (rank + 1) for rank in range(models)], k=requests)
    cache, budget, spent = ModelCache(), sum(sizes) // 5, 0.0
    oldest: dict[str, None] = {}  # the loaded models, least recently used first
    for name in trace:
        key = str(name)
        if key not in cache:
            spent += loads[name]
            if lru:
                while cache.bytes + sizes[name] > budget:
                    cache.take(victim := next(iter(oldest)))
                    del oldest[victim]
            for victim in make_room([*cache], sizes[name], budget):
                cache.evict(victim)
            cache.put(key, sizes[name], loads[name])
        cache.use(key)
        oldest.pop(key, None)
        oldest[key] = None
    return spent


@pytest.mark.parametrize("seed", range(3))
def test_gdsf_spends_less_on_loading_than_lru(seed: int) -> None:
    assert total_load_s(seed, lru=False) < 0.9 * total_load_s(seed, lru=True)
