"""Inventory from probes that may fail: an accelerator is gone only when it was missed several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoal.core import Device, Node
from shoal.engine.local.inventory import Accelerators
from shoal.engine.protocol import Inventory

MISSES = 3
"""The number of answers in a row without an accelerator before it is gone, and of failed probes before the node is
closed: an overloaded driver fails once and answers the next time."""


class Sightings:
    """`make_node` tells the machine's other resources as they are now.

    A machine that had no accelerator when the engine was opened keeps its CPU slots until it is opened again: those
    that run on them would lose their places otherwise.
    """

    def __init__(self, first: Accelerators, make_node: Callable[[Accelerators], Node]) -> None:
        self._slots = not first.devices
        self._make_node = make_node
        self._known = {device.id: device for device in first.devices}
        self._missed: dict[str, int] = {}
        self._failed = 0
        self._node = make_node(first)
        self.inventory = Inventory((self._node,))

    @property
    def doubtful(self) -> bool:
        """Whether the last probe differs from what is told: look again soon."""
        return bool(self._missed) or 0 < self._failed < MISSES

    def saw(self, found: Accelerators) -> Inventory:
        """Take in what one probe found; what is to be told from now on."""
        closed = {}
        if not self._slots:
            if found.answered:
                self._count(found.devices)
            else:
                self._failed += 1
            if self._failed >= MISSES:
                closed = {self._node.name: f"its accelerators do not answer: {found.detail}"}
        devices = tuple(sorted(self._known.values(), key=lambda device: device.index))
        self.inventory = Inventory((self._present(devices),), closed)
        return self.inventory

    def _count(self, devices: tuple[Device, ...]) -> None:
        self._failed = 0
        seen = {device.id: device for device in devices}
        missing = self._known.keys() - seen.keys()
        self._missed = {device: self._missed.get(device, 0) + 1 for device in missing}
        for device in [device for device, times in self._missed.items() if times >= MISSES]:
            del self._known[device], self._missed[device]
        self._known |= seen

    def _present(self, devices: tuple[Device, ...]) -> Node:
        made = self._make_node(Accelerators(devices, ""))
        # Without accelerators, slots would be made up: this machine's are gone, or its slots are those it began with.
        kept = self._node.devices if self._slots else devices
        return replace(made, name=self._node.name, devices=kept)
