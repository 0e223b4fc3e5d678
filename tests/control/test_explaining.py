"""Why jobs can never start, as remembered between submissions."""

from __future__ import annotations

from shoal.admission import ClusterIndex, Layout, Policy
from shoal.control.jobs.explaining import Obstacles
from shoal.core import Device, Node, Quota, Resources, Tenant


def layout(devices: int) -> Layout:
    index = ClusterIndex(Policy())
    index.set_nodes([Node("n", tuple(Device(f"d{n}", "a100", n) for n in range(devices)), 8000, 1 << 30)])
    return index.layout


def test_what_is_remembered_is_of_these_nodes_this_quota_and_this_shape() -> None:
    known, one, two = Obstacles(), layout(1), layout(2)
    red = Tenant("red")

    def codes(where: Layout, tenant: Tenant, count: int, ranks: int = 1) -> list[str]:
        return [each.code for each in known.find(where, tenant, Resources({"a100": count}), ranks)]

    for _ in range(2):
        assert codes(one, red, 1) == []
        assert codes(one, red, 2) == codes(one, red, 1, ranks=2) == ["impossible"]
        assert codes(one, Tenant("red", quota=Quota(accelerators=0)), 1) == ["quota"]
        assert codes(one, Tenant("blue"), 1) == []
    assert codes(two, red, 2) == []
    assert codes(one, red, 2) == ["impossible"]


def test_an_answer_is_the_callers_own() -> None:
    known, one = Obstacles(), layout(1)
    known.find(one, Tenant("red"), Resources({"a100": 2}), 1).clear()
    assert known.find(one, Tenant("red"), Resources({"a100": 2}), 1)
