"""Measures device isolation on a machine with a GPU, and writes docs/measurements/DATE-device-HARDWARE.md.

    python benchmarks/device_gpu.py [--seconds 8] [--out docs/measurements]
    python benchmarks/device_gpu.py --dry-run

Needs PyTorch with CUDA. First single measurements: a launch, a stream's write, the delay of changing between
processes, a kernel whole and in parts, a graph node by node, kernels over the bound. Then services beside training
jobs, models of random weights: requests arrive by a Poisson process at half of what the service can do, and latency
counts from arrival. Each pair runs alone, plain beside each other, with stream priorities in one process, under MPS
where it is installed, and through the gate with whole kernels, slices and tickets. What does not fit into nine minutes
is left out and named.

`--dry-run` goes through all of it on the fake driver of the tests, with stand-ins for models and for MPS, and prints
the page instead of writing it. Its figures mean nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import machine, median, parser

from shoal.core import Unavailable
from shoal.device import cuda
from shoal.device.page import Page
from shoal.device.policy import Rules

LIMIT_S = 9 * 60
LOAD = 0.5
PROGRAMS = Path(__file__).parent / "gpu_programs"
FAKE = Path(__file__).parents[1] / "build/native/device/fake"
PAIRS = (
    (("resnet50", "eager"), ("resnet50", "eager")),
    (("bert", "graph"), ("gpt2", "eager")),
    (("gpt2", "compile"), ("gpt2", "compile")),
)
"""Service and training: stock kernels, CUDA graphs, and kernels by Triton, of which variants are made."""
GATED = {"gate": "whole", "gate+slice": "slice", "gate+ticket": "ticket"}
WAYS = ("plain", "gate", "gate+slice", "gate+ticket", "priority", "mps")
SERVICE, TRAINING = "guaranteed", "best-effort"


class Rig:
    """Programs on the GPU, in the place that each way gives them; with `dry`, on the fake driver."""

    def __init__(self, folder: Path, driver: Path, *, dry: bool) -> None:
        self.folder, self.driver, self.dry = folder, driver, dry
        self.until = time.monotonic() + LIMIT_S
        self.models = "stand_in_models" if dry else "torch_models"

    def environment(self, cls: str | None, more: Mapping[str, str]) -> dict[str, str]:
        env = {**os.environ, "PYTHONPATH": str(PROGRAMS), "SHOAL_REAL_LIBCUDA": str(self.driver)}
        if self.dry:
            env |= {"LD_LIBRARY_PATH": str(FAKE), "SHOAL_FAKE_DEVICE": str(self.folder / "device")}
        if cls is not None:
            env |= cuda.environment(env, self.driver, variants=cls == TRAINING)
            env |= {"SHOAL_DEVICE_PAGE": str(self.folder / "page"), "SHOAL_DEVICE_CLASS": cls}
            env |= {"SHOAL_DEVICE_PROFILE": str(self.folder / "profile")}
        return env | dict(more)

    def start(self, file: str, cls: str | None, *arguments: object, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / file), *map(str, arguments)],
            env=self.environment(cls, more), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def role(self, role: str, cls: str | None, *arguments: object, **more: str) -> subprocess.Popen[str]:
        return self.start("roles.py", cls, self.models, role, *arguments, **more)

    def measure(self, what: str, rounds: int, cls: str | None = None, **more: str) -> dict[str, float]:
        return self.run([self.start("measures.py", cls, what, rounds, **more)], waits=False)[0]

    def left_s(self) -> float:
        return max(1.0, self.until - time.monotonic())

    def run(self, programs: list[subprocess.Popen[str]], *, waits: bool = True) -> list[dict[str, Any]]:
        """What each measured. Programs that wait are let go together once each is ready."""
        try:
            for one in programs if waits else ():
                assert one.stdout is not None
                if one.stdout.readline() != "ready\n":
                    raise RuntimeError("a program did not get ready: see above")
            for one in programs if waits else ():
                assert one.stdin is not None
                one.stdin.write("\n")
                one.stdin.flush()
            return [json.loads(one.communicate(timeout=self.left_s())[0].splitlines()[-1]) for one in programs]
        finally:
            for one in programs:
                one.kill()
                one.wait()

    @contextmanager
    def mps(self) -> Iterator[dict[str, str]]:
        """A daemon of MPS; what its clients need in their environment."""
        control = shutil.which("nvidia-cuda-mps-control")
        if self.dry:
            control = str(self.folder / "mps-control")
            Path(control).write_text(
                f'#!/bin/sh\necho "$@" >> {self.folder}/mps.log; [ "$1" = -d ] || cat >> {self.folder}/mps.log\n'
            )
            Path(control).chmod(0o755)
        if control is None:
            raise Unavailable("nvidia-cuda-mps-control is not installed")
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "mps"), "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "mps")}
        (self.folder / "mps").mkdir(exist_ok=True)
        subprocess.run([control, "-d"], env={**os.environ, **env}, check=True, timeout=30)
        try:
            yield env
        finally:
            subprocess.run([control], input="quit\n", text=True, env={**os.environ, **env}, check=False, timeout=30)


def singles(rig: Rig, rounds: int) -> list[str]:
    """The measurements that say whether the design holds; none needs PyTorch."""
    found: dict[str, Any] = {}
    for cls in (None, SERVICE, TRAINING):
        told = [rig.measure("launches", rounds, cls) for _ in range(3)]
        found |= {f"{name}, {cls or 'without the shim'}": median([one[name] for one in told]) for name in told[0]}
    found |= rig.measure("writes", rounds)
    for beside in (False, True):
        programs = [rig.start("measures.py", None, "switch", max(rounds // 10, 10))]
        if beside:
            programs.append(rig.start("measures.py", None, "busy", 2 * rounds))
        told = rig.run(programs)
        where = "another process runs kernels of 50 us" if beside else "alone"
        found |= {f"launch to end, {where}, {name}": figure for name, figure in told[0].items()}
    found |= rig.measure("parts", max(rounds // 20, 5))
    for cls in (None, TRAINING):
        told = [rig.measure("graph", max(rounds // 20, 5), cls)]
        found |= {f"{name}, {cls or 'without the shim'}": figure for name, figure in told[0].items()}
    found["nvidia-cuda-mps-control"] = shutil.which("nvidia-cuda-mps-control") or "not installed"
    lines = ["| measure | figure |", "|---|---|"]
    return lines + [f"| {name} | {shown(figure)} |" for name, figure in found.items()]


def durations(rig: Rig) -> list[str]:
    bound_us = Rules().bound_ns / 1e3
    lines = [
        f"| training | kernels a step | median us | longest us | over {bound_us:g} us | part of the time |",
        "|---|---|---|---|---|---|",
    ]
    for name, mode in sorted({training for _, training in PAIRS}):
        (one,) = rig.run([rig.role("durations", None, name, mode, bound_us)])
        figures = (one["kernels"], one["median_us"], one["longest_us"], one["over"], one["time_over"])
        lines.append(f"| {name}, {mode} | " + " | ".join(map(shown, figures)) + " |")
    return lines


def pairs(rig: Rig, seconds: float) -> list[str]:
    lines = [
        "| service | beside | way | requests | P50 ms | P99 ms | P99 to alone | service time's P99 to alone "
        "| training to alone |",
        "|" + "---|" * 9,
    ]
    for service, training in PAIRS:
        (alone,) = rig.run([rig.role("service", None, *service, seconds, LOAD, 0)])
        (trained,) = rig.run([rig.role("training", None, *training, seconds)])
        lines.append(line(service, training, "alone", alone, alone, 1.0))
        for way in WAYS:
            if rig.left_s() < 3 * seconds + 20 and not rig.dry:
                lines.append(f"| {', '.join(service)} | {', '.join(training)} | {way} | no time was left |" + " |" * 5)
                continue
            try:
                found = together(rig, way, service, training, seconds, alone["rate"])
            except Unavailable as problem:
                lines.append(f"| {', '.join(service)} | {', '.join(training)} | {way} | {problem} |" + " |" * 5)
                continue
            lines.append(line(service, training, way, found, alone, found["steps_per_s"] / trained["steps_per_s"]))
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def together(
    rig: Rig, way: str, service: tuple[str, str], training: tuple[str, str], seconds: float, rate: float
) -> dict[str, Any]:
    if way == "priority":
        return rig.run([rig.role("both", None, *service, seconds, LOAD, rate, *training)])[0]
    if way == "mps":
        with rig.mps() as env:
            return beside(rig, service, training, seconds, rate, **env)
    classes = (SERVICE, TRAINING) if way in GATED else (None, None)
    more = {"SHOAL_DEVICE_WAYS": GATED[way]} if way in GATED else {}
    return beside(rig, service, training, seconds, rate, classes=classes, **more)


def beside(
    rig: Rig, service: tuple[str, str], training: tuple[str, str], seconds: float, rate: float,
    *, classes: tuple[str | None, str | None] = (None, None), **more: str,
) -> dict[str, Any]:  # fmt: skip
    found, job = rig.run([
        rig.role("service", classes[0], *service, seconds, LOAD, rate, **more),
        rig.role("training", classes[1], *training, seconds, **more),
    ])  # fmt: skip
    return {**found, **job}


def line(
    service: tuple[str, str], training: tuple[str, str], way: str,
    found: dict[str, Any], alone: dict[str, Any], part: float,
) -> str:  # fmt: skip
    figures = (
        found["requests"], found["p50_ms"], found["p99_ms"], found["p99_ms"] / alone["p99_ms"],
        found["service_p99_ms"] / alone["service_p99_ms"], part,
    )  # fmt: skip
    return f"| {', '.join(service)} | {', '.join(training)} | {way} | " + " | ".join(map(shown, figures)) + " |"


def shown(figure: object) -> str:
    return f"{figure:.3g}" if isinstance(figure, float) else str(figure)


def page(rig: Rig, device: cuda.CudaDevice, version: tuple[int, int], seconds: float, rounds: int) -> str:
    Page.create(rig.folder / "page", device=device.uuid).close()
    parts = (
        ("Single measurements", lambda: singles(rig, rounds)),
        ("Kernels over the bound", lambda: durations(rig)),
        (f"Services at load {LOAD:g} beside training", lambda: pairs(rig, seconds)),
    )
    text = [
        "# Device isolation on a GPU", "",
        f"By `benchmarks/device_gpu.py` on one {device.name}, driver for CUDA {version[0]}.{version[1]}; "
        f"{json.dumps(machine())}. Each way ran once for {seconds:g} s. Weights are random, a request is one forward "
        "pass, and its latency counts from arrival.", "",
    ]  # fmt: skip
    for title, make in parts:
        try:
            lines = make()
        except (RuntimeError, ValueError, IndexError, subprocess.SubprocessError) as problem:
            if rig.dry:
                raise
            lines = [f"This part failed: {problem}"]  # the other parts are worth having
        text += [f"## {title}", "", *lines, ""]
    return "\n".join(text)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--dry-run", action="store_true", help="on the fake driver, a fraction of a second for each")
    arguments.add_argument("--seconds", type=float, default=8, help="of each run of a pair")
    arguments.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs/measurements")
    options = arguments.parse_args()
    try:
        driver = cuda.probe(FAKE / cuda.LIBRARY if options.dry_run else None)
    except Unavailable as problem:
        print(f"Nothing was measured: {problem}")
        return 1 if options.dry_run else 0
    if not driver.devices or not cuda.shim().available:
        raise SystemExit(f"nothing was measured: {cuda.capability().detail}")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        rig = Rig(Path(folder), driver.path, dry=options.dry_run)
        seconds, rounds = (0.2, 20) if options.dry_run else (options.seconds, 1000)
        text = page(rig, driver.devices[0], driver.version, seconds, rounds)
        if options.dry_run:
            with suppress(FileNotFoundError):
                print((rig.folder / "mps.log").read_text().split())
    if options.dry_run:
        print(text)
        return 0
    hardware = re.sub(r"[^a-z0-9]+", "-", driver.devices[0].name.lower()).strip("-")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{datetime.now(UTC):%Y-%m-%d}-device-{hardware}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
