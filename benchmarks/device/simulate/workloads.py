"""Workloads of a simulated device: inference services and training jobs, as distributions of kernel durations.

**Synthetic.** The names are those of Tally's evaluation (ASPLOS'25: six models infer, six train, one A100). BERT
answers in 4.1 ms as in its published artifact; all else is of a plausible size only: numbers of kernels, the spread
of their durations, blocks, and the parts of a request or a training step in which the host works and the device
rests. LLaMA-2 and Stable Diffusion answer in seconds there; here requests are cut to tens of milliseconds, so that
interference weighs more, not less.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

US = 1_000
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class SimulatedKernel:
    """`blocks` of `block_ns` each, of which the device holds `wave` at once when it has nothing else to do."""

    number: int
    blocks: int
    block_ns: int
    wave: int

    def takes(self, blocks: int) -> int:
        """Nanoseconds on a device of its own, without what a launch costs."""
        return -(-blocks // self.wave) * self.block_ns

    @property
    def alone_ns(self) -> int:
        return self.takes(self.blocks)


@dataclass(frozen=True, slots=True)
class Model:
    """Kernel durations are lognormal with this mean and sigma, at most `longest_us`; `host` is the part of a request
    or of a training step in which the device rests."""

    name: str
    kernels: int
    mean_us: float
    sigma: float
    longest_us: float
    host: float
    full: float = 1.0
    """Part of the kernels that fill the device; the others hold a part of it."""

    def draw(self, seed: int) -> tuple[SimulatedKernel, ...]:
        """The kernels of one request or step, the same in each."""
        rng = random.Random(f"{self.name} {seed}")
        found = []
        for number in range(self.kernels):
            wanted = rng.lognormvariate(math.log(self.mean_us) - self.sigma**2 / 2, self.sigma)
            took = min(wanted, self.longest_us) * US
            wave = rng.choice((108, 216, 432))
            block = min(took, rng.uniform(6, 30) * US)
            waves = max(round(took / block), 1)
            blocks = waves * wave - rng.randrange(wave // 2)
            if rng.random() > self.full:
                blocks = rng.randrange(wave // 8, wave)
                took, waves = block, 1
            found.append(SimulatedKernel(number, blocks, max(round(took / waves), US), wave))
        return tuple(found)


SERVICES = {
    one.name: one
    for one in (
        Model("resnet50", 60, 20, 0.5, 120, host=0.10, full=0.5),
        Model("bert", 220, 16, 0.4, 80, host=0.10, full=0.5),
        Model("yolov6m", 200, 45, 0.6, 400, host=0.10, full=0.7),
        Model("gpt-neo", 500, 40, 0.4, 200, host=0.08, full=0.6),
        Model("llama-2", 500, 70, 0.4, 300, host=0.05, full=0.8),
        Model("stable-diffusion", 400, 120, 0.7, 1200, host=0.04, full=0.9),
    )
}
TRAININGS = {
    one.name: one
    for one in (
        Model("resnet50-train", 480, 240, 0.8, 2_000, host=0.06, full=0.9),
        Model("pointnet-train", 220, 180, 0.8, 1_500, host=0.10, full=0.8),
        Model("bert-train", 600, 260, 0.7, 1_500, host=0.05, full=0.9),
        Model("gpt2-large-train", 900, 110, 0.6, 700, host=0.06, full=0.8),
        Model("pegasus-x-train", 700, 320, 0.9, 3_000, host=0.06, full=0.9),
        Model("whisper-v3-train", 500, 900, 1.0, 8_000, host=0.04, full=0.95),
    )
}
MIXES = tuple((service, training) for service in SERVICES for training in TRAININGS)
"""All pairs, as in the paper."""
DIAGONAL = tuple(zip(SERVICES, TRAININGS, strict=True))
"""One pair for each model, where all would take too long."""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """None of these was measured on a device that Shoal runs on: they are of the size that the literature gives."""

    launch_ns: int = 4 * US
    """CPU time of a launch, and the delay until the device sees it."""
    start_ns: int = 2 * US
    """On the device, before the first block of a kernel runs."""
    timeslice_ns: int = 2 * MS
    """After it the device changes to another process that has work."""
    switch_ns: int = 15 * US
    """To another process, when the one before has nothing left."""
    preempt_ns: int = 60 * US
    """To another process at the end of a time slice, with kernels running."""
    look_ns: int = 2 * US
    """From the end of a piece until a gate that spins has seen it, and how late a gate looks that slept."""
    stop_ns: int = 15 * US
    """From a guaranteed launch until a ticket kernel has been told to stop."""
    interference: float = 0.2
    """Blocks that share the device with another process take this part longer."""
