"""What jobs say of nodes, as each engine passes it on to what picks the machines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.contract.manifest import Nodes
from shoal.core import Affinity, Effect, Node, Preference, Taint, Toleration
from shoal.engine import Gang, RankSpec
from shoal.engine.kubernetes.nodes import affinity_of, tolerations_of
from shoal.engine.local.engine import LocalEngine
from shoal.engine.local.settings import LocalSettings
from shoal.engine.pool import unfit
from shoal.engine.protocol import Refused

ASKS = Affinity(
    require=(("zone", ("a", "b")),),
    prefer=(Preference((("cache", ("imagenet",)),), 60.0), Preference((("rack", ("r1",)),), 0.1)),
    tolerate=(Toleration("team", "red", Effect.NO_SCHEDULE), Toleration("spot")),
)


def gang(affinity: Affinity) -> Gang:
    return Gang("j-1.1.run", ("true",), (RankSpec(0, "pool"),), Path("/tmp/run"), affinity=affinity)


def test_kubernetes_gets_it_in_its_own_words() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    cache = {"key": "cache", "operator": "In", "values": ["imagenet"]}
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    assert affinity_of(ASKS) == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [cache]}},
                {"weight": 1, "preference": {"matchExpressions": [rack]}},
            ],
        }
    }
    assert tolerations_of(ASKS) == [
        {"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert affinity_of(Affinity()) == {}


MACHINES = (
    Node("n0", labels={"zone": "a"}),
    Node("n1", labels={"zone": "c"}),
    Node("n2", labels={"zone": "b"}, taints=(Taint("x"),)),
)


def test_where_machines_can_be_left_out_those_that_do_not_fit_are() -> None:
    assert unfit(gang(ASKS), MACHINES) == ["n1", "n2"]
    assert unfit(gang(Affinity()), MACHINES) == ["n2"]
    assert unfit(gang(ASKS), ()) == [], "nothing is known of the machines yet"


def test_a_gang_that_fits_on_no_machine_is_refused() -> None:
    with pytest.raises(Refused, match=r"zone=a\|b") as refused:
        unfit(gang(ASKS), MACHINES[1:])
    assert refused.value.hint == "change `nodes` in the manifest"


def test_a_plane_asks_the_shared_pool_for_the_same_nodes() -> None:
    again = Nodes.of(ASKS)
    assert again is not None
    assert again.affinity == ASKS
    assert Nodes.of(Affinity()) is None


def test_a_machine_says_of_itself_what_its_settings_do(tmp_path: Path) -> None:
    told = LocalSettings.model_validate(
        {"labels": "zone=a, disk=ssd", "taints": "team=red:NoSchedule,old:PreferNoSchedule"}
    )

    async def seen() -> Node:
        engine = LocalEngine(tmp_path, slots=1, settings=told)
        await engine.open()
        try:
            return (await engine.inventory()).nodes[0]
        finally:
            await engine.close()

    node = asyncio.run(seen())
    assert node.labels == {"zone": "a", "disk": "ssd"}
    assert node.taints == (Taint("team", "red"), Taint("old", effect=Effect.PREFER_NO_SCHEDULE))
    assert replace(node, labels={}, taints=()).devices, "and it is the machine that it was"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"labels": "zone"}, "must be LABEL=VALUE"),
        ({"taints": "team=red"}, "must be LABEL=VALUE:EFFECT with one of NoSchedule"),
        ({"taints": ["team:Never"]}, "must be LABEL=VALUE:EFFECT"),
        ({"labels": {"shoal/rented-for": "j-1"}}, "are the server's own"),
        ({"taints": "shoal/x:NoSchedule"}, "are the server's own"),
    ],
)
def test_wrong_labels_and_taints_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LocalSettings.model_validate(given)
