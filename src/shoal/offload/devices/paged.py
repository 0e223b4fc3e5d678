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
from shoal.offload.arrays.residents import Resident, elements_of
from shoal.offload.devices.device import Device, DeviceFull, DeviceLost, Page
from shoal.placement import Graph, Node, place_pipelined

PAGES = 3
"""Under way at once: one each way, and one at work."""

_LARGEST, _LEAST = 1 << 22, 1 << 12
"""Elements of a page: from the one on, larger pages copy no faster; below the other, calls take longer than copies."""

SHARE = 0.8
"""Of the free memory: the driver and others need the rest."""

_HOST, _THERE = 0, 1


def element_bytes(recipe: Recipe) -> int:
    """Of a page, for each of its elements."""
    return sum(TYPES[char] for char, _ in recipe.inputs) + sum(TYPES[step.char] for step in recipe.steps)


def best_elements(size: int) -> int:
    """Elements of a page where there is memory enough."""
    return min(_LARGEST, max(_LEAST, -(-size // (2 * PAGES))))


def page_elements(device: Device, recipe: Recipe, size: int) -> int:
    """Elements of a page, so that all pages under way fit. Raises DeviceLost; 0 where none fits."""
    fits = int(device.free_bytes() * SHARE / PAGES / element_bytes(recipe))
    found = min(fits, best_elements(size))
    return found if found >= _LEAST else 0


@dataclass(frozen=True)
class Plan:
    """Where each step runs, and what one evaluation is expected to take, copies and work overlapping."""

    there: tuple[bool, ...]
    seconds: float


@dataclass(frozen=True)
class Sizes:
    """What a plan is for: the elements of each input, those of the program and of a page; which inputs are on the
    device, and the steps whose results are expected to come home."""

    inputs: tuple[int, ...]
    size: int
    elements: int
    there: frozenset[int]
    home: tuple[int, ...]


def plan(device: Device, recipe: Recipe, sizes: Sizes, host_s: Sequence[float]) -> Plan:
    """Place a whole program at once, by one cut. `host_s` has the seconds of each step on the host."""
    size = sizes.size
    nodes = [
        Node("input", (0.0, 0.0), out_bytes=count * TYPES[char], pin=_THERE if number in sizes.there else _HOST)
        for number, (count, (char, _)) in enumerate(zip(sizes.inputs, recipe.inputs, strict=True))
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
    wanted = [first + each for each in sizes.home]
    if recipe.total:  # a number comes back, and the node that reads it costs no copy
        nodes[last] = Node(nodes[last].name, nodes[last].seconds, nodes[last].inputs, 8.0)
        wanted.append(last)
    nodes += [Node("result", (0.0, 0.0), (each,), pin=_HOST) for each in wanted]
    graph = Graph(tuple(nodes), ("host", device.name), {(0, 1): device.link, (1, 0): device.link})
    chunks = max(1, -(-size // sizes.elements))
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
    """A device with the arrays of one evaluation, in the place of a compiled kernel. `arrived` are the inputs that are
    there, by number; `residents` the results that stay there, by step, within `room` bytes."""

    def __init__(
        self, device: Device, lost: Lost, recipe: Recipe, constants: bytes, there: Sequence[bool], room: float
    ) -> None:
        self._device, self._lost, self.recipe, self._there, self._room = device, lost, recipe, there, room
        self._constants = [
            np.frombuffer(constants, char, 1, 8 * number)[0] for number, char in enumerate(recipe.constants)
        ]
        self._inputs: Sequence[np.ndarray] = ()
        self._outputs: Sequence[np.ndarray] = ()
        self._rolls: Mapping[int, Roll] = {}
        self._lock = threading.Lock()
        self.arrived: dict[int, Resident] = {}
        self.residents: dict[int, Resident] = {}

    def bind(self, arrays: Sequence[np.ndarray], shape: tuple[int, ...], rolls: Mapping[int, Roll]) -> None:  # noqa: ARG002
        """`arrays` are the inputs and the outputs."""
        first = len(self.recipe.inputs)
        self._inputs, self._outputs, self._rolls = arrays[:first], arrays[first:], rolls

    def run(self, block: Block) -> tuple[bool, float]:
        """One block: whether NumPy must do it, and the total. Raises DeviceLost where inputs are lost with it."""
        if self._lost.reason:
            return self._at_loss()
        try:
            with self._device.page() as page:
                found = self._run(page, block)
                if found[0]:
                    self._bring(page, block)
                return found
        except DeviceFull:
            pass  # outside the handler: what the page held must be free before a smaller one
        except DeviceLost as error:
            return self._at_loss(error)
        if (halves := _halves(block)) is not None:
            several = [self.run(each) for each in halves]
            return any(faulty for faulty, _ in several), sum(total for _, total in several)
        try:
            with self._device.page() as page:
                self._bring(page, block)
        except DeviceLost as error:
            return self._at_loss(error)
        return True, 0.0

    def _bring(self, page: Page, block: Block) -> None:
        """To the host, where NumPy takes it."""
        for each in self.arrived.values():
            each.bring(page, block)

    def _at_loss(self, error: DeviceLost | None = None) -> tuple[bool, float]:
        if error is not None:
            self._lost.tell(f"{self._device.name}: {error}")
        if self.arrived or any(each.kept for each in self.residents.values()):
            raise DeviceLost(self._lost.reason)
        return True, 0.0

    def _run(self, page: Page, block: Block) -> tuple[bool, float]:
        inputs = [part(each, block, self._rolls.get(i)) for i, each in enumerate(self._inputs)]
        shape = tuple(each.stop - each.start for each in block)
        host: dict[tuple[str, int], Any] = {("input", number): each for number, each in enumerate(inputs)}
        there: dict[tuple[str, int], Any] = {}
        for number, resident in self.arrived.items():
            if (held := resident.of(block)) is not None:
                del host["input", number]
                there["input", number] = page.kept(held)
            else:  # cut in another way by a page that did not fit
                resident.bring(page, block)
        checked: list[Any] = []
        for number, (step, away) in enumerate(zip(self.recipe.steps, self._there, strict=True)):
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
        for out, number in zip(self._outputs, self.recipe.outputs, strict=True):
            key = ("step", number)
            if key in there:
                if not self._keep(page, number, there[key], block):
                    page.fetch(there[key], out[block])
            else:
                np.copyto(out[block], host[key])
        if not self.recipe.total:
            return False, 0.0
        last = ("step", len(self.recipe.steps) - 1)
        if last not in there:
            return False, float(np.add.reduce(host[last], axis=None))
        if last[1] not in self.recipe.outputs:
            self._keep(page, last[1], there[last], block)
        return False, page.total(there[last])

    def _keep(self, page: Page, step: int, value: Any, block: Block) -> bool:
        """Leave a result there; False where it must come home."""
        if step not in self.residents:
            return False
        size = elements_of(block) * TYPES[self.recipe.steps[step].char]
        with self._lock:
            self._room -= size
            if self._room < 0:
                return False
        self.residents[step].keep(block, page.keep(value))
        return True

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
                host[key] = np.empty(shape, argument.char)
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
