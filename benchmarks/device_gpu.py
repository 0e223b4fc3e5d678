"""Measures device isolation on a machine with a GPU: one line of JSON for each result, and a page made of them.

    python benchmarks/device_gpu.py [--only pair1,singles] [--seconds 6] [--runs 3] [--limit 540] [--out DIRECTORY]
    python benchmarks/device_gpu.py --dry-run

Parts: `singles` are a launch, a stream's write, the delay of changing between processes, a kernel whole and in parts,
a graph node by node. `durations` are kernels over the bound. `pair1` to `pair3` are a service beside a training job,
models of random weights: requests arrive by a Poisson process at half of what the service can do, and latency counts
from arrival. Each pair runs alone, plain beside each other, through the gate with whole kernels, slices and tickets,
with stream priorities in one process, and under MPS where it is installed; all ways once, then all again, `--runs`
times. The first pair has kernels by Triton: only there can slices show. All but `singles` needs PyTorch with CUDA.

Each result is added to DIRECTORY/rows.jsonl at once (by default $OUT, or build/device-gpu): what was measured before
something hangs or the time is over is kept, and several calls with one DIRECTORY make one page. What fails is a row.

`--dry-run` goes through all of it on the fake driver of the tests, with stand-ins for models and for MPS. Its figures
mean nothing. docs/contributing/gpu.md has the calls for a machine that is lent for half an hour.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from common import machine, median, parser

import shoal
from shoal.core import Unavailable
from shoal.device import cuda
from shoal.device.page import Page
from shoal.device.policy import Class, Rules

LOAD = 0.5
PROGRAMS = Path(__file__).parent / "gpu_programs"
FAKE = Path(__file__).parents[1] / "build/native/device/fake"
PAIRS = {
    "pair1": (("gpt2", "compile"), ("gpt2", "compile")),
    "pair2": (("resnet50", "eager"), ("resnet50", "eager")),
    "pair3": (("bert", "graph"), ("gpt2", "eager")),
}
"""Service and training: kernels by Triton, of which variants are made; stock kernels; CUDA graphs."""
PARTS = ("pair1", "singles", "pair2", "durations", "pair3")
GATED = {"gate": "whole", "gate+slice": "slice", "gate+ticket": "ticket"}
WAYS = ("plain", *GATED, "priority", "mps")
SERVICE, TRAINING = "guaranteed", "best-effort"
READY_S = {"compile": 180.0}
"""How long a program may take until it is ready; others one minute."""
Row = dict[str, Any]


class Rig:
    """Programs on the GPU, in the place that each way gives them; with `dry`, on the fake driver."""

    def __init__(self, folder: Path, driver: Path, *, limit_s: float, dry: bool) -> None:
        self.folder, self.driver, self.dry = folder, driver, dry
        self.until = time.monotonic() + limit_s
        self.way = "alone"
        self.count = 0
        self.models = "stand_in_models" if dry else "torch_models"

    def environment(self, cls: str | None, more: Mapping[str, str]) -> dict[str, str]:
        # Programs of a Python that Shoal is not installed in find it where this one did.
        known = [str(PROGRAMS), str(Path(shoal.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": ":".join(filter(None, known)), "SHOAL_REAL_LIBCUDA": str(self.driver)}
        # What one way compiled must not be found by another: kernels with variants and kernels without.
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            env[name] = str(self.folder / "compiled" / self.way / name.split("_")[0].lower())
        if self.dry:
            env |= {"LD_LIBRARY_PATH": str(self.driver.parent), "SHOAL_FAKE_DEVICE": str(self.folder / "device")}
        if cls is not None:
            env |= cuda.environment(env, self.driver, variants=cls == TRAINING)
            env |= {"SHOAL_DEVICE_PAGE": str(self.folder / "page"), "SHOAL_DEVICE_CLASS": cls}
            env |= {
                "SHOAL_DEVICE_PROFILE": str(self.folder / f"profile-{self.way}"),
                "SHOAL_DEVICE_NAME": f"{cls}-{self.count}",
            }
        return env | dict(more)

    def start(self, file: str, cls: str | None, *arguments: object, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / file), *map(str, arguments)],
            env=self.environment(cls, more), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def role(self, role: str, cls: str | None, *arguments: object, **more: str) -> subprocess.Popen[str]:
        return self.start("roles.py", cls, self.models, role, *arguments, **more)

    def measure(self, what: str, rounds: int, cls: str | None = None, **more: str) -> dict[str, float]:
        return self.run([self.start("measures.py", cls, what, rounds, **more)], ready_s=None)[0]

    def left_s(self) -> float:
        return max(1.0, self.until - time.monotonic())

    def run(self, programs: list[subprocess.Popen[str]], *, ready_s: float | None = 60) -> list[dict[str, Any]]:
        """What each measured. Programs that wait, with `ready_s`, are let go together once each is ready."""
        try:
            if ready_s is not None:
                until = time.monotonic() + min(ready_s, self.left_s())
                for one in programs:
                    wait_ready(one, until)
                for one in programs:
                    assert one.stdin is not None
                    one.stdin.write("\n")
                    one.stdin.flush()
            return [json.loads(one.communicate(timeout=self.left_s())[0].splitlines()[-1]) for one in programs]
        finally:
            for one in programs:
                one.kill()
                one.wait()

    def counters(self, cls: str) -> Row:
        """Of the last process of this class at the gate; its slot keeps them when it has ended."""
        with Page.open(self.folder / "page") as page:
            for slot in page.struct.slot:
                if slot.name.decode() == f"{cls}-{self.count}":
                    names = ("pieces", "parts", "violations", "shares", "collectives", "kernels", "variants")
                    return {name: getattr(slot, name) for name in names}
        raise RuntimeError(f"the {cls} process was never at the gate: which libcuda did it open?")

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


def wait_ready(program: subprocess.Popen[str], until: float) -> None:
    assert program.stdout is not None
    if not select.select([program.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
        raise TimeoutError("a program did not get ready in time")
    if program.stdout.readline() != "ready\n":
        raise RuntimeError("a program did not get ready: see its messages above")


def ready_s(*modes: str) -> float:
    return max(READY_S.get(mode, 60.0) for mode in modes)


class Results:
    """Rows, each on disk as soon as it is known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "rows.jsonl"

    def add(self, part: str, **row: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"part": part, **row}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(json.dumps({"part": part, **row}), file=sys.stderr, flush=True)

    def attempt(self, part: str, name: Row, make: Callable[[], Row]) -> Row:
        """A row of what `make` measures, or of why it could not; what it measured."""
        began = time.monotonic()
        try:
            found = make()
        except Exception as problem:  # the next ones are worth having
            self.add(part, **name, error=f"{type(problem).__name__}: {problem}", took_s=time.monotonic() - began)
            return {}
        self.add(part, **name, **found, took_s=time.monotonic() - began)
        return found

    def rows(self) -> list[Row]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def singles(rig: Rig, results: Results, rounds: int) -> None:
    """The measurements that say whether the design holds; none needs PyTorch."""
    few = max(rounds // 20, 5)

    def beside(busy: bool) -> Row:
        programs = [rig.start("measures.py", None, "switch", max(rounds // 10, 10))]
        if busy:
            programs.append(rig.start("measures.py", None, "busy", 2 * rounds))
        return rig.run(programs)[0]

    def launched(cls: str | None, other: bool) -> Row:
        with Page.open(rig.folder / "page") as page:
            slot = page.join(Class.BEST_EFFORT, name="idle") if other else None
            try:
                return rig.measure("launches", rounds, cls)
            finally:
                if slot is not None:
                    page.leave(slot)

    for _ in range(3):
        for cls in (None, SERVICE, TRAINING):
            for other in (False, True) if cls == SERVICE else (False,):
                name = {"what": "launches", "class": cls or "without the shim", "best-effort tenant beside": other}
                results.attempt("singles", name, partial(launched, cls, other))
    results.attempt("singles", {"what": "writes"}, lambda: rig.measure("writes", rounds))
    for busy in (False, True):
        name = {"what": "launch to end", "another process runs kernels of 50 us": busy}
        results.attempt("singles", name, partial(beside, busy))
    results.attempt("singles", {"what": "parts"}, lambda: rig.measure("parts", few))
    for cls in (None, TRAINING):
        name = {"what": "graph", "class": cls or "without the shim"}
        results.attempt("singles", name, partial(rig.measure, "graph", few, cls))
    results.add("singles", what="nvidia-cuda-mps-control", path=shutil.which("nvidia-cuda-mps-control"))


def one_role(rig: Rig, role: str, limit: float, *arguments: object) -> Row:
    return rig.run([rig.role(role, None, *arguments)], ready_s=limit)[0]


def durations(rig: Rig, results: Results) -> None:
    bound_us = Rules().bound_ns / 1e3
    for name, mode in sorted({training for _, training in PAIRS.values()}):
        results.attempt(
            "durations", {"training": name, "mode": mode},
            partial(one_role, rig, "durations", ready_s(mode), name, mode, bound_us),
        )  # fmt: skip


def pair(rig: Rig, results: Results, part: str, seconds: float, runs: int) -> None:
    service, training = PAIRS[part]
    limit = ready_s(service[1], training[1])
    for run in range(runs):
        rig.way = "alone"
        alone = results.attempt(
            part, {"way": "alone", "run": run},
            partial(one_role, rig, "service", limit, *service, seconds, LOAD, 0),
        )  # fmt: skip
        results.attempt(
            part, {"way": "alone", "run": run},
            partial(one_role, rig, "training", limit, *training, seconds),
        )  # fmt: skip
        for way in WAYS if alone else ():
            name = {"way": way, "run": run}
            if rig.left_s() < 2 * seconds + 10 and not rig.dry:
                results.add(part, **name, error="no time was left")
                continue
            rig.way = way
            rig.count += 1
            results.attempt(part, name, partial(together, rig, way, service, training, seconds, alone["rate"], limit))


def together(
    rig: Rig, way: str, service: tuple[str, str], training: tuple[str, str], seconds: float, rate: float, limit: float
) -> Row:
    if way == "priority":
        return rig.run([rig.role("both", None, *service, seconds, LOAD, rate, *training)], ready_s=limit)[0]
    if way == "mps":
        with rig.mps() as env:
            return beside(rig, service, training, seconds, rate, limit, **env)
    if way not in GATED:
        return beside(rig, service, training, seconds, rate, limit)
    found = beside(
        rig, service, training, seconds, rate, limit, classes=(SERVICE, TRAINING), SHOAL_DEVICE_WAYS=GATED[way]
    )
    counters = rig.counters(TRAINING)
    if way != "gate" and training[1] == "compile" and not counters["parts"]:
        # It would be the figure of another way.
        raise RuntimeError(f"no kernel was launched in parts: {counters['variants']} of {counters['kernels']} could be")
    return {**found, **counters}


def beside(
    rig: Rig, service: tuple[str, str], training: tuple[str, str], seconds: float, rate: float, limit: float,
    *, classes: tuple[str | None, str | None] = (None, None), **more: str,
) -> Row:  # fmt: skip
    found, job = rig.run([
        rig.role("service", classes[0], *service, seconds, LOAD, rate, **more),
        rig.role("training", classes[1], *training, seconds, **more),
    ], ready_s=limit)  # fmt: skip
    return {**found, **job}


def page_of(rows: list[Row]) -> str:
    """A table for each part: of runs of the same, the median."""
    text = ["# Device isolation on a GPU", ""]
    for row in rows:
        if row["part"] == "machine":
            text += [f"- {json.dumps({key: value for key, value in row.items() if key != 'part'})}"]
    for part in PARTS:
        own = [row for row in rows if row["part"] == part]
        if not own:
            continue
        what = ", ".join(PAIRS[part][0]) + " beside training of " + ", ".join(PAIRS[part][1]) if part in PAIRS else part
        text += ["", f"## {what}", "", "| what | runs | figures (median) |", "|---|---|---|"]
        groups: dict[str, list[Row]] = {}
        for row in own:
            # Measurements are numbers with a fraction, or counters; all else says what was measured.
            name = ", ".join(f"{key}: {value}" for key, value in row.items() if key in NAMES)
            groups.setdefault(name, []).append(row)
        for name, same in groups.items():
            measures = sorted({key for row in same for key in row if key not in (*NAMES, *HIDDEN)})
            told = [f"{key} {shown(median([row[key] for row in same if row.get(key) is not None]))}"
                    for key in measures if any(isinstance(row.get(key), int | float) for row in same)]  # fmt: skip
            told += sorted({row["error"] for row in same if "error" in row})
            text.append(f"| {name} | {len(same)} | {'; '.join(told)} |")
    return "\n".join([*text, ""])


NAMES = (
    "way",
    "what",
    "class",
    "training",
    "mode",
    "best-effort tenant beside",
    "another process runs kernels of 50 us",
)
HIDDEN = ("part", "run", "error", "path", "took_s")


def shown(figure: float) -> str:
    return f"{figure:.4g}"


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--dry-run", action="store_true", help="on the fake driver, a fraction of a second for each")
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, in this order")
    arguments.add_argument("--seconds", type=float, default=6, help="of each run of a pair")
    arguments.add_argument("--runs", type=int, default=3, help="of each pair, all ways in each")
    arguments.add_argument("--limit", type=float, default=540, help="seconds; what does not fit is left out and named")
    usual = Path(os.environ.get("OUT") or Path(__file__).parents[1] / "build/device-gpu")
    arguments.add_argument("--out", type=Path, default=usual)
    arguments.add_argument("--driver", type=Path, help="the libcuda.so.1 to measure [the machine's]")
    options = arguments.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        driver = cuda.probe(options.driver or (FAKE / cuda.LIBRARY if options.dry_run else None))
    except Unavailable as problem:
        print(f"Nothing was measured: {problem}")
        return 1 if options.dry_run else 0
    if not driver.devices or not cuda.shim().available:
        raise SystemExit(f"nothing was measured: {cuda.capability().detail}")
    results = Results(options.out)
    seconds, rounds, runs = (0.2, 20, 1) if options.dry_run else (options.seconds, 1000, options.runs)
    device = driver.devices[0]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        rig = Rig(Path(folder), driver.path, limit_s=options.limit, dry=options.dry_run)
        # Blocks of the fake driver take 0.1 ms.
        rules = Rules(bound_ns=1_000_000) if options.dry_run else Rules()
        Page.create(rig.folder / "page", device=device.uuid, rules=rules).close()
        variants = sorted(cuda.environment(os.environ, driver.path, variants=True))
        results.add(
            "machine", device=device.name, cuda=".".join(map(str, driver.version)), seconds=seconds, variants=variants,
            assembler=str(cuda.assembler(os.environ, sys.executable)), **machine(),
        )  # fmt: skip
        for part in parts:
            rig.way = "alone"
            if part == "singles":
                singles(rig, results, rounds)
            elif part == "durations":
                durations(rig, results)
            else:
                pair(rig, results, part, seconds, runs)
            (options.out / "page.md").write_text(page_of(results.rows()))
    if options.dry_run:
        print(page_of(results.rows()))
        return 1 if any("error" in row for row in results.rows()) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
