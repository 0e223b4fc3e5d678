"""Choice of a way for a program of array operations, from estimated and measured seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.offload.arrays.chunks import BlockKernel, Chunks, Function, Reducer
from shoal.offload.arrays.kernels import BoundKernel, Kernels
from shoal.offload.arrays.program import Operation, Program
from shoal.offload.arrays.vectorised import Vectorised
from shoal.offload.calibration import Calibrating
from shoal.offload.costs import CostModel
from shoal.offload.devices.choice import Devices
from shoal.offload.devices.paged import PAGES
from shoal.offload.history import History
from shoal.offload.settings import CompileMode, OffloadSettings
from shoal.offload.trust import Trust

BLOCK = 32768
"""Elements of a block. The buffers of a chain of double precision fit into a core's second cache with it."""

KERNEL_BLOCK = 65536
"""Elements of a block of a compiled kernel, which needs no buffers. A call of it takes as long as 2,000 of them."""

_IMPORT_S = 3.0
"""Seconds to be saved before PyTorch is imported for them: the import and the first calls take up to two."""

_AT_ONCE, _IN_TIME = 2.0, 3.0
"""A kernel is made at once where one evaluation gains this multiple of its price, and in the background where those so
far would have gained that multiple, in this run and those before."""

_TRIED = 1 << 19
"""Elements up to which the plain way is measured once, too: an estimate of it decides nothing where little is gained.
Not where the user has set the threshold."""

_LOAD_AGE_S = 1.0
_CROWDED = 2.0
"""Runnable threads of others for each core, from which one thread of this program is enough."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a program is run: the backend's name, its reason, the cut, and functions in place of ufuncs."""

    backend: str
    reason: str
    chunks: Chunks
    expected_s: float
    estimate_s: float
    replaced: Mapping[Any, Function] = field(default_factory=dict)
    costs: CostModel | None = None
    kernel: BlockKernel | None = None
    alternatives: Mapping[str, float] = field(default_factory=dict)

    def backend_of(self, operation: Operation) -> str:
        return "torch" if operation.ufunc in self.replaced else self.backend

    def reason_of(self, operation: Operation) -> str:
        return "torch" if operation.ufunc in self.replaced else self.reason

    def weight(self, operation: Operation) -> float:
        return (
            1.0
            if self.costs is None
            else self.costs.seconds_per_element(operation.ufunc.__name__, operation.dtype.char)
        )


class Chooser:
    """Knows the backends of one installation, and what each took for programs that were run before."""

    def __init__(self, settings: OffloadSettings, costs: CostModel, *, calibrated: bool = True) -> None:
        self.settings, self.costs = settings, costs
        self.trust = Trust()
        self.history = History(settings.folder)
        self.calibrating = Calibrating(
            settings.folder, self.history, costs.calibrate,
            wanted=not calibrated and settings.compile is not CompileMode.NEVER,
        )  # fmt: skip
        self._asked, self._free = float("-inf"), settings.cores
        wait = settings.compile is CompileMode.WAIT
        torch = "torch" in settings.allowed and not settings.strict
        self.vectorised = Vectorised(self.trust, allowed=torch, wait=wait)
        compiled = "compiled" in settings.allowed and settings.compile is not CompileMode.NEVER
        self.kernels = Kernels(settings.folder, self.trust, allowed=compiled, strict=settings.strict)
        self.devices = Devices(settings, self.trust)

    def close(self) -> None:
        self.history.save()

    def choose(self, program: Program, reducer: Reducer | None = None) -> Way:
        """`reducer`: what it makes of the last operation is wanted, not its values. Kernels and devices know sums."""
        total = reducer is not None and reducer.of_total is not None
        blocks_only = reducer is not None and not total
        expected, costs = self.costs.expected, self.costs
        plain = costs.plain(program)
        whole = Chunks(1, max(program.size, 1))
        ways = {"plain": Way("plain", "plain-faster", whole, expected("plain", program, plain), plain, costs=costs)}
        if "chunks" in self.settings.allowed:
            threads = self._threads()
            cut, seconds = Chunks(threads, BLOCK), costs.chunks(program, threads, BLOCK)
            ways["chunks"] = Way("chunks", "chunks", cut, expected("chunks", program, seconds), seconds, costs=costs)
            kernel = None if blocks_only else self._kernel(program, ways, total=total)
            if kernel is not None:
                cut, seconds = Chunks(threads, KERNEL_BLOCK), costs.compiled(program, threads, KERNEL_BLOCK)
                ways["compiled"] = Way(
                    "compiled", "compiled", cut, expected("compiled", program, seconds), seconds, costs=costs,
                    kernel=kernel,
                )  # fmt: skip
                if not costs.measured("chunks", program):
                    del ways["chunks"]  # the same with more work: nothing speaks for it before it was measured
            elif replaced := self._replacements(program):
                seconds = costs.chunks(program, threads, BLOCK, faster={each.__name__ for each in replaced})
                ways["torch"] = Way(
                    "torch", "chunks", cut, expected("torch", program, seconds), seconds, replaced, costs=costs
                )
        if not blocks_only:
            self._add_device(program, ways, total=total)
        best = min(ways.values(), key=lambda each: each.expected_s)
        if (
            not program.residents
            and program.size <= _TRIED
            and self.settings.threshold == OffloadSettings().threshold
            and costs.measured(best.backend, program)
            and not costs.measured("plain", program)
        ):
            best = ways["plain"]
        return replace(best, alternatives={name: each.expected_s for name, each in ways.items()})

    def _add_device(self, program: Program, ways: dict[str, Way], *, total: bool) -> None:
        if self.devices.possible and not self.devices.ready:
            if self.devices.needs_torch and not self.vectorised.ready:
                lost = self.history.add("device", min(each.expected_s for each in ways.values()))
                if self.settings.compile is CompileMode.WAIT or lost > _IMPORT_S:
                    self.vectorised.load()
                return
            self.devices.find()
        if not self.devices.ready:
            return
        home_s = self.devices.home_s(program)
        for name, each in ways.items() if home_s else ():
            ways[name] = replace(each, expected_s=each.expected_s + home_s)
        best = min(ways.values(), key=lambda each: each.expected_s)
        weights = [best.weight(one) for one in program.operations]
        host_s = [(best.expected_s - home_s) * each / (sum(weights) or 1.0) for each in weights]
        found = self.devices.bound(program, host_s, total=total)
        if found is not None:
            name, kernel, elements, seconds = found
            ways[name] = Way(
                name, "device", Chunks(PAGES, elements), self.costs.expected(name, program, seconds), seconds,
                costs=self.costs, kernel=kernel,
            )  # fmt: skip

    def _replacements(self, program: Program) -> Mapping[Any, Function]:
        candidates = self.vectorised.candidates(program)
        if not candidates:
            return {}
        if not self.vectorised.ready:
            per_element = sum(self.costs.seconds_per_element(o.ufunc.__name__, o.dtype.char) for o in candidates)
            lost = self.history.add("torch", per_element * program.size / self.settings.cores)
            if self.settings.compile is not CompileMode.WAIT and (lost < _IMPORT_S or self._crowded()):
                return {}
            self.vectorised.load()
        return self.vectorised.replacements(program)

    def _kernel(self, program: Program, ways: Mapping[str, Way], *, total: bool) -> BoundKernel | None:
        """A kernel that is there, or that is worth to be made."""
        recipe = self.kernels.recipe(program, total=total)
        if recipe is None:
            return None
        price = self.kernels.price(recipe)
        if 0 < price < float("inf"):
            estimate = self.costs.compiled(program, self._threads(), KERNEL_BLOCK)
            gain = min(each.expected_s for each in ways.values()) - self.costs.expected("compiled", program, estimate)
            lost = self.history.add(f"kernel/{recipe.digest}", max(gain, 0.0))
            if self.settings.compile is CompileMode.WAIT or gain > _AT_ONCE * price:
                self.kernels.make(recipe)
            elif lost > _IN_TIME * price:
                self.kernels.start(recipe)
        return self.kernels.bound(recipe, program)

    def absent(self) -> tuple[str, ...]:
        """Why a way was not among the alternatives."""
        found = []
        if not self.kernels.allowed:
            found.append("compiled: llvmlite is not installed, or not allowed")
        if not self.vectorised.installed:
            found.append("torch: PyTorch is not installed, or not allowed")
        elif not self.vectorised.ready:
            found.append("torch: PyTorch is not imported before it would repay that")
        if self.devices.reason:
            found.append(f"device: {self.devices.reason}")
        found += [f"{each} gave another result at first use" for each in self.trust.refused]
        return tuple(found)

    def _threads(self) -> int:
        """As many as find a core: on a machine that others fill, a block in another thread waits for its turn."""
        now = time.monotonic()
        if now - self._asked > _LOAD_AGE_S:
            others = os.getloadavg()[0] - self._free
            crowded = others > _CROWDED * (os.cpu_count() or 1)
            self._asked, self._free = now, 1 if crowded else self.settings.cores
        return self._free

    def _crowded(self) -> bool:
        """Whether others fill the machine: what is made ready in the background would take this program's own time."""
        return self._threads() < self.settings.cores

    def single(self, ufunc: Any, size: int, dtype: np.dtype[Any]) -> Chunks | None:
        """How one operation is cut that is done at once; None where one thread does it."""
        threads = self._threads()
        if threads == 1 or "chunks" not in self.settings.allowed:
            return None
        if not self.costs.worth_threads(ufunc.__name__, dtype.char, size, threads):
            return None
        return Chunks(threads, max(BLOCK, -(-size // (4 * threads))))
