"""A program on a device, page by page: it stands where a compiled kernel stands, and each block is a page.

Three threads have a page each, so that one is copied in while another is worked on and a third is copied out. A page
that does not fit is halved; one that is too small to be halved, and every page after the device is lost, is NumPy's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.offload.arrays.functions import Roll
from shoal.offload.arrays.program import Block, part
from shoal.offload.arrays.recipe import TYPES, Recipe, Step
from shoal.offload.devices.device import Device, DeviceFull, DeviceLost, Page
from shoal.placement import Graph, Node, place_pipelined

PAGES = 3
"""Under way at once: one each way, and one at work."""

_LARGEST, _LEAST = 1 << 22, 1 << 12
"""Elements of a page: from the one on, larger pages copy no faster; below the other, calls take longer than copies."""

_SHARE = 0.8
"""Of the free memory: the driver and others need the rest."""

_HOST, _THERE = 0, 1


def page_elements(device: Device, recipe: Recipe, size: int) -> int:
    """Elements of a page, so that all pages under way fit. Raises DeviceLost; 0 where none fits."""
    bytes_each = sum(TYPES[char] for char, _ in recipe.inputs) + sum(TYPES[step.char] for step in recipe.steps)
    fits = int(device.free_bytes() * _SHARE / PAGES / bytes_each)
    found = min(_LARGEST, fits, max(_LEAST, -(-size // (2 * PAGES))))
    return found if found >= _LEAST else 0


@dataclass(frozen=True)
class Plan:
    """Where each step runs, and what one evaluation is expected to take, copies and work overlapping."""

    there: tuple[bool, ...]
    seconds: float


def plan(
    device: Device, recipe: Recipe, shapes: Sequence[float], size: int, host_s: Sequence[float], elements: int
) -> Plan:
    """Place a whole program at once, by one cut. `shapes` has the elements of each input, `host_s` the seconds of each
    step on the host."""
    nodes = [
        Node("input", (0.0, 0.0), out_bytes=count * TYPES[char], pin=_HOST)
        for count, (char, _) in zip(shapes, recipe.inputs, strict=True)
    ]
    first = len(nodes)
    for step, seconds in zip(recipe.steps, host_s, strict=True):
        inputs = [
            each.number + (first if each.source == "step" else 0)
            for each in step.arguments
            if each.source != "constant"
        ]
        there = device.element_s(step) * size if device.can(step) else float("inf")
        nodes.append(Node(step.name, (seconds, there), tuple(dict.fromkeys(inputs)), size * float(TYPES[step.char])))
    last = range(first + len(recipe.steps))[-1]
    wanted = [first + each for each in recipe.outputs]
    if recipe.total:  # a number comes back, and the node that reads it costs no copy
        nodes[last] = Node(nodes[last].name, nodes[last].seconds, nodes[last].inputs, 8.0)
        wanted.append(last)
    nodes += [Node("result", (0.0, 0.0), (each,), pin=_HOST) for each in wanted]
    graph = Graph(tuple(nodes), ("host", device.name), {(0, 1): device.link, (1, 0): device.link})
    chunks = max(1, -(-size // elements))
    found = place_pipelined(graph, chunks)
    sites = found.assignment[first : first + len(recipe.steps)]
    return Plan(tuple(each == _THERE for each in sites), found.seconds)


class Lost:
    """Whether a device is out of use in this process, and why."""

    def __init__(self) -> None:
        self.reason = ""
        self._lock = threading.Lock()

    def tell(self, reason: str) -> None:
        with self._lock:
            self.reason = self.reason or reason


class BoundDevice:
    """A device with the arrays of one evaluation, in the place of a compiled kernel."""

    def __init__(self, device: Device, lost: Lost, recipe: Recipe, constants: bytes, there: Sequence[bool]) -> None:
        self._device, self._lost, self._recipe, self._there = device, lost, recipe, there
        self._constants = [
            np.frombuffer(constants, char, 1, 8 * number)[0] for number, char in enumerate(recipe.constants)
        ]
        self._inputs: Sequence[np.ndarray] = ()
        self._outputs: Sequence[np.ndarray] = ()
        self._rolls: Mapping[int, Roll] = {}

    def bind(self, arrays: Sequence[np.ndarray], shape: tuple[int, ...], rolls: Mapping[int, Roll]) -> None:  # noqa: ARG002
        """`arrays` are the inputs and the outputs."""
        first = len(self._recipe.inputs)
        self._inputs, self._outputs, self._rolls = arrays[:first], arrays[first:], rolls

    def run(self, block: Block) -> tuple[bool, float]:
        """One block: whether NumPy must do it, and the total."""
        if self._lost.reason:
            return True, 0.0
        try:
            with self._device.page() as page:
                return self._run(page, block)
        except DeviceFull:
            pass  # outside the handler: what the page held must be free before a smaller one
        except DeviceLost as error:
            self._lost.tell(f"{self._device.name}: {error}")
            return True, 0.0
        halves = _halves(block)
        if halves is None:
            return True, 0.0
        found = [self.run(each) for each in halves]
        return any(faulty for faulty, _ in found), sum(total for _, total in found)

    def _run(self, page: Page, block: Block) -> tuple[bool, float]:
        inputs = [part(each, block, self._rolls.get(i)) for i, each in enumerate(self._inputs)]
        shape = tuple(each.stop - each.start for each in block)
        host: dict[tuple[str, int], Any] = {("input", number): each for number, each in enumerate(inputs)}
        there: dict[tuple[str, int], Any] = {}
        checked: list[Any] = []
        for number, (step, away) in enumerate(zip(self._recipe.steps, self._there, strict=True)):
            key = ("step", number)
            if away:
                there[key] = page.apply(step, [self._moved(page, each, host, there) for each in step.arguments])
                if step.checked:
                    checked.append(there[key])
            else:
                host[key] = self._at_home(page, step, host, there, shape)
                if step.checked and not np.isfinite(host[key]).all():
                    return True, 0.0
        if checked and not page.finite(checked):
            return True, 0.0
        for out, number in zip(self._outputs, self._recipe.outputs, strict=True):
            key = ("step", number)
            if key in there:
                page.fetch(there[key], out[block])
            else:
                np.copyto(out[block], host[key])
        if not self._recipe.total:
            return False, 0.0
        last = ("step", len(self._recipe.steps) - 1)
        return False, page.total(there[last]) if last in there else float(np.add.reduce(host[last], axis=None))

    def _moved(self, page: Page, argument: Any, host: Mapping[Any, Any], there: dict[Any, Any]) -> Any:
        if argument.source == "constant":
            return self._constants[argument.number].item()
        key = (argument.source, argument.number)
        if key not in there:
            there[key] = page.send(host[key])
        return there[key]

    def _at_home(
        self, page: Page, step: Step, host: dict[Any, Any], there: Mapping[Any, Any], shape: tuple[int, ...]
    ) -> np.ndarray:
        values = []
        for argument, char in zip(step.arguments, step.loop, strict=True):
            key = (argument.source, argument.number)
            if argument.source == "constant":
                values.append(self._constants[argument.number])
                continue
            if key not in host:
                host[key] = np.empty(shape, self._recipe.steps[argument.number].char)
                page.fetch(there[key], host[key])
            values.append(np.asarray(host[key]).astype(char, copy=False))
        with np.errstate(all="ignore"):
            return np.asarray(function_of(step.name)(*values))


def function_of(name: str) -> Any:
    """NumPy's function of this name, or SciPy's."""
    found = getattr(np, name, None)
    if found is None:
        from scipy import special

        found = getattr(special, name)
    return found


def _halves(block: Block) -> tuple[Block, Block] | None:
    """Along the longest axis; None for a page that is small already."""
    lengths = [each.stop - each.start for each in block]
    if int(np.prod(lengths)) < 2 * _LEAST:
        return None
    axis = int(np.argmax(lengths))
    own = block[axis]
    middle = (own.start + own.stop) // 2
    first, second = (
        (*block[:axis], each, *block[axis + 1 :]) for each in (slice(own.start, middle), slice(middle, own.stop))
    )
    return first, second
