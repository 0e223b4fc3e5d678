"""Who gets an update's requests while it rolls out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.inference.types import ModelSpec
from shoal.serve.live.routes import rolling
from shoal.serve.types import Route, ServiceSpec


def spec(model: str = "m", shadow: str | None = None, **shares: float) -> ServiceSpec:
    versions = tuple(ModelSpec(model, "m.onnx", version=version) for version in shares)
    route = Route(tuple(shares.items()), shadow, 0.5 if shadow else 0.0)
    return ServiceSpec("ocr", "ada", versions, ((model, route),))


def shares(found: ServiceSpec, model: str = "m") -> dict[str, float]:
    return {version: round(share, 3) for version, share in dict(found.routes)[model].shares}


def test_without_older_replicas_the_routes_are_as_they_were_asked_for() -> None:
    asked = spec(v1=0.9, v2=0.1)
    assert rolling({3: asked}, {3: 2}) is asked


def test_old_replicas_answer_until_new_ones_are_ready_and_then_by_their_number() -> None:
    specs = {1: spec(v1=1.0), 2: spec(v2=1.0)}
    assert shares(rolling(specs, {1: 3})) == {"v1": 1.0, "v2": 0.0}
    assert shares(rolling(specs, {1: 3, 2: 1})) == {"v1": 0.75, "v2": 0.25}
    assert shares(rolling(specs, {2: 3})) == {"v1": 0.0, "v2": 1.0}
    assert shares(rolling(specs, {})) == {"v1": 0.5, "v2": 0.5}
    nobody_yet = dict(dict(rolling(specs, {1: 3}).routes)["m"].shares)
    assert nobody_yet["v2"] > 0  # if all older ones are gone, it must not be left out


def test_a_version_that_both_have_is_one_version() -> None:
    specs = {1: spec(v1=1.0), 2: spec(v1=0.5, v2=0.5)}
    assert shares(rolling(specs, {1: 1, 2: 1})) == {"v1": 0.75, "v2": 0.25}


def test_models_that_only_one_generation_has_are_its_own() -> None:
    found = rolling({1: spec("old", v1=1.0), 2: spec("new", v1=1.0)}, {1: 5})
    assert [model for model, _ in found.routes] == ["new"]
    assert shares(found, "new") == {"v1": 1.0}


def test_shadows_are_the_new_ones() -> None:
    found = rolling({1: spec(shadow="v9", v1=1.0), 2: spec(shadow="v3", v2=1.0)}, {1: 1, 2: 1})
    route = dict(found.routes)["m"]
    assert (route.shadow, route.shadow_share) == ("v3", 0.5)


numbers = st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 1), min_size=1, max_size=4)


@given(
    specs=st.dictionaries(st.integers(1, 5), numbers, min_size=1, max_size=4),
    ready=st.dictionaries(st.integers(1, 5), st.integers(0, 9)),
)
def test_shares_are_always_a_whole(specs: dict[int, dict[str, float]], ready: dict[int, int]) -> None:
    made = {
        number: spec(**{name: one / sum(each.values()) for name, one in each.items()}) for number, each in specs.items()
    }
    route = dict(rolling(made, ready).routes)["m"]
    assert abs(sum(share for _, share in route.shares) - 1) < 1e-9
    assert {version for version, _ in route.shares} == {name for each in specs.values() for name in each}
