"""Annotated functions on arrays of other libraries: four devices of JAX, and PyTorch's, which have shapes only."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from shoal.offload.arrays.recipe import Argument, Step
from shoal.placement import Graph, Link, Node, place

ON_FOUR_DEVICES = """
import itertools, json, sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
devices = jax.devices()
assert len(devices) == 4
graph = json.loads(sys.stdin.readline())
moved, values = 0, []
for inputs, site in graph:
    taken = []
    for each in inputs:
        held = values[each]
        if devices[site] not in held:
            moved += next(iter(held.values())).nbytes
            held[devices[site]] = jax.device_put(next(iter(held.values())), devices[site])
        taken.append(held[devices[site]])
    made = sum(taken, jax.device_put(jnp.arange(8.0), devices[site])) * 2
    assert made.devices() == {devices[site]}
    values.append({devices[site]: made})
print(json.dumps([moved, [float(next(iter(each.values())).sum()) for each in values]]))
"""


@pytest.mark.slow
def test_a_placement_over_four_devices_moves_what_it_says() -> None:
    """The work of each node is done by JAX at its site, and mixing of devices raises."""
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    nodes = [Node("0", (0.0, 9.0, 9.0, 9.0), (), 64.0, pin=0)]
    for i in range(1, 12):
        inputs = tuple(sorted({int(each) for each in rng.integers(0, i, 2)}))
        nodes.append(Node(str(i), tuple(rng.random(4)), inputs, 64.0))
    links = {pair: Link(1e9) for pair in itertools.permutations(range(4), 2)}
    found = place(Graph(tuple(nodes), ("a", "b", "c", "d"), links))
    assert len(set(found.assignment)) == 4
    asked = json.dumps([(node.inputs, site) for node, site in zip(nodes, found.assignment, strict=True)])
    environ = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    argv = [sys.executable, "-c", ON_FOUR_DEVICES]
    ended = subprocess.run(argv, input=asked, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    moved, sums = json.loads(ended.stdout)
    assert moved == found.bytes_moved
    expected: list[np.ndarray] = []
    for node in nodes:
        expected.append(sum((expected[each] for each in node.inputs), np.arange(8.0)) * 2)
    assert sums == [float(each.sum()) for each in expected]


def step(name: str, char: str, count: int) -> Step:
    return Step(name, "d" * count, char, tuple(Argument("input", i, "d") for i in range(count)))


def test_pytorchs_operations_have_numpys_types_and_shapes_past_any_memory() -> None:
    torch = pytest.importorskip("torch")
    from shoal.offload.arrays.recipe import ARITHMETIC, COMPARISONS, NAMES
    from shoal.offload.devices.torch_device import TorchPage

    page = TorchPage(torch, torch.device("meta"), {})
    size = 1 << 40
    large = torch.empty((3, size), dtype=torch.float64, device="meta")
    for name in (*ARITHMETIC, *COMPARISONS, *(each for each in NAMES if each != "cbrt")):
        count = getattr(np, name).nin if hasattr(np, name) else 1
        made = page.apply(step(name, "?" if name in COMPARISONS else "d", count), [large] * count)
        assert made.shape == (3, size), name
        assert str(made.dtype) == ("torch.bool" if name in COMPARISONS else "torch.float64"), name


def test_pytorchs_operations_give_what_numpy_gives() -> None:
    pytest.importorskip("torch")
    from shoal.offload.arrays.recipe import ARITHMETIC, COMPARISONS, LOGIC, NAMES
    from shoal.offload.devices.choice import _compared
    from shoal.offload.devices.torch_device import TorchDevice

    device = TorchDevice("cpu")
    names = [*ARITHMETIC, *COMPARISONS, *NAMES, *(each for each in LOGIC if not each.startswith(("bitwise", "invert")))]
    wrong = []
    for name in names:
        count = getattr(np, name).nin if hasattr(np, name) else 1
        one = step(name, "?" if name in COMPARISONS or name in LOGIC else "d", count)
        if device.can(one) and not _compared(device, one):
            wrong.append(name)
    assert wrong == []


def test_pytorch_takes_captured_arrays_and_writes_into_them(captured: None) -> None:
    torch = pytest.importorskip("torch")
    a = np.arange(100.0)
    later = a + 1
    torch.from_numpy(a).zero_()
    assert (later[99], a[99]) == (100.0, 0.0)
    assert float(torch.from_numpy(a + 1).sum()) == 100.0
