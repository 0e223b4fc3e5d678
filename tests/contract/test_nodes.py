"""`nodes` of a manifest: what is read, how it is written down, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.contract.manifest import JobManifest, parse_manifest
from shoal.core import NO_AFFINITY, Affinity, Effect, Invalid, Preference, Toleration


def read(nodes: Any) -> JobManifest:
    return parse_manifest(json.dumps({"name": "job", "command": ["true"], "nodes": nodes}))


def test_all_that_it_says_comes_to_admission() -> None:
    found = read({
        "require": {"zone": "a", "gpu-gen": ["ampere", "hopper"]},
        "prefer": [{"labels": {"example.com/cache": "imagenet"}, "weight": 60}, {"labels": {"rack": ["r1", "r2"]}}],
        "tolerate": ["dedicated=ml:NoSchedule", "spot", "team=red"],
    })  # fmt: skip
    assert found.affinity == Affinity(
        require=(("gpu-gen", ("ampere", "hopper")), ("zone", ("a",))),
        prefer=(Preference((("example.com/cache", ("imagenet",)),), 60.0), Preference((("rack", ("r1", "r2")),), 1.0)),
        tolerate=(
            Toleration("dedicated", "ml", Effect.NO_SCHEDULE),
            Toleration("spot"),
            Toleration("team", "red"),
        ),
    )


def test_it_is_stored_and_read_again_and_equal_ones_are_the_same() -> None:
    one = read({"require": {"b": ["x", "x"], "a": "y"}})
    assert parse_manifest(one.canonical_json()).affinity == one.affinity
    assert read({"require": {"a": ["y"], "b": "x"}}).fingerprint() == one.fingerprint()


def test_a_manifest_without_it_is_what_it_was() -> None:
    plain = parse_manifest('{"name": "job", "command": ["true"]}')
    assert plain.affinity is NO_AFFINITY
    assert '"nodes"' not in plain.canonical_json()


@pytest.mark.parametrize(
    ("nodes", "where", "what"),
    [
        ({"require": {"zone": 3}}, "nodes.require", "is no text"),
        ({"require": {"zone": True}}, "nodes.require", "quote numbers, yes and no"),
        ({"require": {"zone": []}}, "nodes.require", "label zone has no value"),
        ({"require": {"zone": "a b"}}, "nodes.require", "is not a label's value"),
        ({"require": {"-x": "a"}}, "nodes.require", "is not the name of a label"),
        ({"require": ["zone=a"]}, "nodes.require", "write {LABEL: VALUE}"),
        ({"requires": {"zone": "a"}}, "nodes.requires", "require"),
        ({"prefer": [{"labels": {"zone": "a"}, "weight": 0}]}, "weight", "more than 0"),
        ({"prefer": [{"weight": 2}]}, "nodes.prefer", "labels"),
        ({"prefer": [{"labels": {}}]}, "labels", "nothing in it"),
        ({"tolerate": ["team=red:Never"]}, "nodes.tolerate", "NoSchedule, PreferNoSchedule, NoExecute"),
        ({"tolerate": [{"key": "team"}]}, "nodes.tolerate", "as `kubectl taint` writes taints"),
        ({"tolerate": ["team="]}, "nodes.tolerate", "is not a label's value"),
        ({"tolerate": ["shoal/rented-for=j-1"]}, "nodes.tolerate", "the server's own taint"),
        ({"tolerate": ["shoal/rented-for"]}, "nodes.tolerate", "the server's own taint"),
    ],
)
def test_what_is_wrong_is_refused_where_it_stands(nodes: Any, where: str, what: str) -> None:
    with pytest.raises(Invalid) as raised:
        read(nodes)
    told = f"{raised.value} {raised.value.hint}"
    assert where in str(raised.value.where) + told
    assert what in told
