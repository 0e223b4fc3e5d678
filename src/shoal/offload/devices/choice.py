"""Choice of a device, and whether a program is worth its copies."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.offload.arrays.kernels import TOLERANCE, sample
from shoal.offload.arrays.recipe import Recipe, Step, constants_of, recipe_of
from shoal.offload.arrays.residents import RESIDENTS, Resident, elements_of
from shoal.offload.devices.device import Device, DeviceFull, DeviceLost, Page
from shoal.offload.devices.paged import (
    PAGES,
    SHARE,
    BoundDevice,
    Lost,
    Plan,
    Sizes,
    best_elements,
    element_bytes,
    function_of,
    page_elements,
    plan,
)
from shoal.offload.trust import Trust, agree

if TYPE_CHECKING:
    from shoal.offload.arrays.chunks import Reducer
    from shoal.offload.arrays.program import Program
    from shoal.offload.settings import OffloadSettings

GROUP = "shoal.offload.devices"

_SMALLEST = 1 << 16
"""Elements below which no program is considered."""

_MOST_PLANS = 1024


class Devices:
    """The device of one installation. `reason` says why it is out of use."""

    def __init__(self, settings: OffloadSettings, trust: Trust, device: Device | None = None) -> None:
        self._settings, self._trust = settings, trust
        self._lost = Lost()
        allowed = "device" in settings.allowed and not settings.strict
        self._device = device if allowed else None
        driver = Path("/dev/nvidiactl").exists() and importlib.util.find_spec("torch") is not None
        self.possible = allowed and device is None and bool(settings.device or driver)
        self._plans: dict[tuple[Any, ...], tuple[Plan, int] | None] = {}
        self._looks: dict[Any, tuple[int, int]] = {}
        self._recipes: dict[tuple[Any, ...], Recipe | None] = {}

    @property
    def needs_torch(self) -> bool:
        return not self._settings.device

    @property
    def ready(self) -> bool:
        return self._device is not None and not self._lost.reason

    @property
    def reason(self) -> str:
        return self._lost.reason

    def find(self) -> None:
        """Open the device. What fails is kept as the reason, and the CPU does the work."""
        self.possible = False
        try:
            self._device = self._open()
        except Exception as error:  # whatever a driver or another package says
            self._lost.tell(f"it cannot be used: {error}")

    def _open(self) -> Device | None:
        if self._settings.device:
            from importlib.metadata import entry_points

            offered = tuple(entry_points(group=GROUP, name=self._settings.device))
            if not offered:
                raise LookupError(f"no package offers the device {self._settings.device}")
            made: Device = offered[0].load()()
            return made
        import torch

        from shoal.offload.devices.torch_device import TorchDevice

        return TorchDevice(limit_bytes=self._settings.device_memory) if torch.cuda.is_available() else None

    def bound(
        self, program: Program, host_s: Sequence[float], *, total: bool
    ) -> tuple[str, BoundDevice, int, float] | None:
        """The device's name, what runs the pages, their elements, and the seconds to be expected. None where nothing
        would run there. `host_s` are the seconds of each operation on the host."""
        if self._device is None or program.size < _SMALLEST:
            return None
        recipe = self._recipe(program, total=total)
        constants = None if recipe is None else constants_of(program, recipe)
        if recipe is None or constants is None:
            return None
        arrived = {number: each for number, node in program.residents.items() if (each := RESIDENTS.of(node))}
        cuts = {(each.shape, each.elements) for each in arrived.values()}
        if len(cuts) > 1 or any(shape != program.cut_shape for shape, _ in cuts):
            return None  # they come home, where they fit together again
        self._make_room(program, recipe)
        steps = dict(zip(recipe.outputs, program.outputs, strict=True))
        home = tuple(step for step, node in steps.items() if node is program.wanted or self._often((program.key, step)))
        sizes = tuple(each.size for each in program.inputs)
        key = (program.key, total, program.size.bit_length(), sizes, frozenset(arrived), home, *cuts)
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            elements = cuts.pop()[1] if cuts else 0
            self._plans[key] = self._plan(
                recipe, Sizes(sizes, program.size, elements, frozenset(arrived), home), host_s
            )
        found = self._plans[key]
        if found is None or self._lost.reason:
            return None
        planned, elements = found
        room = self._free_bytes() - PAGES * elements * element_bytes(recipe)
        kernel = BoundDevice(self._device, self._lost, recipe, constants, planned.there, room)
        kernel.arrived = arrived
        if total:
            steps[len(recipe.steps) - 1] = program.operations[-1].node
        kernel.residents = {
            step: Resident(np.empty(program.shape, node.dtype), program.cut_shape, elements, (program.key, step))
            for step, node in steps.items()
            if node is not program.wanted and planned.there[step]
        }
        return self._device.name, kernel, elements, planned.seconds

    def _make_room(self, program: Program, recipe: Recipe) -> None:
        """Bring results home, those first that were not used for longest, until pages fit as they should, and the
        results that the program holds."""
        wanted = PAGES * best_elements(program.size) * element_bytes(recipe) / SHARE
        wanted += sum(node.nbytes for node in program.outputs if node is not program.wanted)
        used = list(program.residents.values())
        for node in RESIDENTS.oldest_first():
            if self._lost.reason or self._free_bytes() >= wanted:
                return
            if not any(node is each for each in used):
                node.compute()

    def _free_bytes(self) -> int:
        assert self._device is not None
        try:
            return self._device.free_bytes()
        except DeviceLost as error:
            self._lost.tell(f"{self._device.name}: {error}")
            return 0

    def _often(self, key: Any) -> bool:
        """Whether this result came home at least every second time; one that was never seen does."""
        stayed, fetched = self._looks.get(key, (0, 0))
        return 2 * fetched >= stayed

    def stays(self, resident: Resident) -> None:
        """One more result is on the device."""
        if len(self._looks) >= _MOST_PLANS:
            self._looks.clear()
        stayed, fetched = self._looks.get(resident.key, (0, 0))
        self._looks[resident.key] = stayed + 1, fetched

    def fetch(self, resident: Resident) -> None:
        """Copy a result to the host. Raises DeviceLost."""
        stayed, fetched = self._looks.get(resident.key, (0, 0))
        self._looks[resident.key] = stayed, fetched + 1
        with self._page() as page:
            resident.bring(page)

    def parts(self, resident: Resident, reducer: Reducer) -> list[Any] | None:
        """What the reducer gives for each block; None where the values have to come home for it."""
        if reducer.of_total is None or not resident.whole:
            return None
        try:
            with self._page() as page:
                totals = [
                    (page.total(page.kept(held)), elements_of(block))
                    for _, (block, held) in sorted(resident.kept.items(), key=lambda each: each[0])
                ]
        except DeviceLost:
            return None
        if any(math.isnan(total) for total, _ in totals):
            return None
        return [reducer.of_total(total, count) for total, count in totals]

    @contextlib.contextmanager
    def _page(self) -> Iterator[Page]:
        if self._device is None or self._lost.reason:
            raise DeviceLost(self._lost.reason)
        try:
            with self._device.page() as page:
                yield page
        except DeviceLost as error:
            self._lost.tell(f"{self._device.name}: {error}")
            raise
        except DeviceFull as error:
            raise DeviceLost(str(error)) from None

    def home_s(self, program: Program) -> float:
        """Seconds until the host has all inputs of a program."""
        found = [resident.nbytes for node in program.residents.values() if (resident := RESIDENTS.of(node))]
        return sum(map(self._device.link.seconds, found)) if self._device is not None else 0.0

    def _recipe(self, program: Program, *, total: bool) -> Recipe | None:
        key = (program.key, total)
        if key not in self._recipes:
            if len(self._recipes) >= _MOST_PLANS:
                self._recipes.clear()
            self._recipes[key] = recipe_of(program, [True] * len(program.inputs), total=total)
        return self._recipes[key]

    def _plan(self, recipe: Recipe, sizes: Sizes, host_s: Sequence[float]) -> tuple[Plan, int] | None:
        assert self._device is not None
        try:
            elements = sizes.elements or page_elements(self._device, recipe, sizes.size)
        except DeviceLost as error:
            self._lost.tell(f"{self._device.name}: {error}")
            return None
        if not elements:
            return None
        sizes = replace(sizes, elements=elements)
        found = plan(self._device, recipe, sizes, host_s)
        if any(found.there):  # only then are its operations compared
            found = plan(_Trusted(self._device, self._same), recipe, sizes, host_s)
        return (found, elements) if any(found.there) else None

    def _same(self, step: Step) -> bool:
        """Whether the device gives for a step what NumPy gives; compared at its first use, special values first."""
        device = self._device
        assert device is not None
        key = (device.name, step.name, step.loop)
        known = self._trust.known(key)
        if known is None:
            known = _compared(device, step)
            self._trust.settle(key, known)
        return known


class _Trusted:
    """A device without what it does otherwise than NumPy."""

    def __init__(self, device: Device, same: Any) -> None:
        self._device, self._same = device, same

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def can(self, step: Step) -> bool:
        return self._device.can(step) and bool(self._same(replace(step, arguments=(), checked=False)))


def _compared(device: Device, step: Step) -> bool:
    inputs = [sample(char, number, special=True) for number, char in enumerate(step.loop)]
    try:
        with device.page() as page:
            found = np.empty(len(inputs[0]), step.char)
            page.fetch(page.apply(step, [page.send(each) for each in inputs]), found)
    except (DeviceFull, DeviceLost):
        return False
    with np.errstate(all="ignore"):
        expected = np.asarray(function_of(step.name)(*inputs))
    return agree(expected.astype(step.char, copy=False), found, TOLERANCE[step.char])
