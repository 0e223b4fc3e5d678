"""Measures device isolation on a machine with a GPU: the shim's cost, and a service's latency beside a training job.

    python benchmarks/device_gpu.py [--dry-run] [--seconds 12] [--out docs/measurements]

Needs PyTorch with CUDA. First the shim alone: does it load under PyTorch, what does it add to a launch and to the
launch of a graph, in either class. Then pairs of models with random weights, a service at half of its capacity beside a
training job: requests arrive by a Poisson process, and a request's latency counts from its arrival. Each pair runs
alone, plain beside each other, and with the gate. `--dry-run` prints the plan; without a GPU nothing else is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine, median, parser

from shoal.core import Unavailable
from shoal.device import cuda
from shoal.device.page import Page

LIMIT_S = 9 * 60
LOAD = 0.5
SERVICES = ("resnet50", "bert", "gpt2")
TRAININGS = ("resnet50", "gpt2")
WAYS = ("alone", "plain", "gate")

# Shapes of ResNet-50, BERT-base and GPT-2 from plain PyTorch layers: weights are random, and nothing is downloaded.
_MODELS = """
import json, random, sys, time
import torch
from torch import nn

class Bottleneck(nn.Module):
    def __init__(self, inner, outer, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer))
        same = channels == outer and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(channels, outer, 1, stride, bias=False)
    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))

def resnet50():
    layers, channels = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for index in range(depth):
            layers.append(Bottleneck(64 << stage, 256 << stage, channels, 2 if stage and not index else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

class Text(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.embed, self.causal = nn.Embedding(30000, 768), causal
        layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
        self.body, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 30000)
    def forward(self, tokens):
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.body(self.embed(tokens), mask=mask, is_causal=self.causal))

def build(name, batch):
    torch.manual_seed(0)
    model = resnet50() if name == "resnet50" else Text(name == "gpt2")
    given = torch.randn(batch, 3, 224, 224) if name == "resnet50" else torch.randint(0, 30000, (batch, 128))
    return model.cuda(), given.cuda()
"""

_SERVE = (
    _MODELS
    + """
name, seconds, rate = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
model, given = build(name, 1)
model.eval()
def answer():
    with torch.no_grad():
        model(given)
    torch.cuda.synchronize()
for _ in range(20):
    answer()
began = time.perf_counter()
for _ in range(30):
    answer()
alone = (time.perf_counter() - began) / 30
print("ready", flush=True)
sys.stdin.readline()
if not rate:
    rate = float(sys.argv[4]) / alone
draw, arrival, latencies = random.Random(1), time.perf_counter(), []
end = arrival + seconds
while arrival < end:
    time.sleep(max(0.0, arrival - time.perf_counter()))
    answer()
    latencies.append(time.perf_counter() - arrival)
    arrival += draw.expovariate(rate)
latencies.sort()
print(json.dumps({"rate": rate, "requests": len(latencies), "p50_ms": latencies[len(latencies) // 2] * 1e3,
                  "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3}))
"""
)

_TRAIN = (
    _MODELS
    + """
name = sys.argv[1]
model, given = build(name, 32 if name == "resnet50" else 8)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
def step():
    optimizer.zero_grad()
    model(given).float().square().mean().backward()
    optimizer.step()
for _ in range(5):
    step()
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
began, steps, end = time.perf_counter(), 0, time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < end:
    step()
    torch.cuda.synchronize()
    steps += 1
print(json.dumps({"steps_per_s": steps / (time.perf_counter() - began)}))
"""
)

_LAUNCHES = """
import json, time
import torch
x = torch.zeros(32, device="cuda")
def timed(call, count):
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        call()
    cpu = time.perf_counter() - began
    torch.cuda.synchronize()
    return cpu / count * 1e6, (time.perf_counter() - began) / count * 1e6
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(20):
        x.add_(1)
kernel, replay = timed(lambda: x.add_(1), 500), timed(graph.replay, 200)
print(json.dumps(dict(zip(("launch", "launch_done", "graph", "graph_done"), (*kernel, *replay)))))
"""


class Rig:
    """Programs on the GPU, in the place that each way gives them."""

    def __init__(self, folder: Path, driver: Path, until: float) -> None:
        self.folder, self.driver, self.until = folder, driver, until

    def start(self, program: str, cls: str | None, *arguments: object) -> subprocess.Popen[str]:
        env = dict(os.environ)
        if cls is not None:
            env |= cuda.environment(env, self.driver, variants=cls == "best-effort")
            env |= {"SHOAL_DEVICE_PAGE": str(self.folder / "page"), "SHOAL_DEVICE_CLASS": cls}
            env |= {"SHOAL_DEVICE_PROFILE": str(self.folder / "profile")}
        return subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, programs: list[subprocess.Popen[str]], *, gated: bool = True) -> list[dict[str, Any]]:
        """Lets all begin together once each is ready; what each measured."""
        try:
            if gated:
                for one in programs:
                    assert one.stdout is not None
                    if one.stdout.readline() != "ready\n":
                        raise RuntimeError("a program did not get ready: see above")
            told = []
            for one in programs:
                assert one.stdin is not None
                one.stdin.write("\n")
                one.stdin.flush()
            for one in programs:
                out, _ = one.communicate(timeout=max(1.0, self.until - time.monotonic()))
                told.append(json.loads(out.splitlines()[-1]))
            return told
        finally:
            for one in programs:
                one.kill()


def pairs(rig: Rig, seconds: float) -> list[str]:
    lines = [
        "| service | beside | way | requests | P50 ms | P99 ms | P99 to alone | training to alone |",
        "|---|---|---|---|---|---|---|---|",
    ]
    trained = {name: rig.run([rig.start(_TRAIN, None, name, seconds)])[0]["steps_per_s"] for name in TRAININGS}
    for service in SERVICES:
        (alone,) = rig.run([rig.start(_SERVE, None, service, seconds, 0, LOAD)])
        for training in TRAININGS:
            for way in WAYS:
                if time.monotonic() > rig.until - 3 * seconds:
                    return [*lines, f"| the time of {LIMIT_S} s was over | | | | | | | |"]
                found, steps = alone, ""
                if way != "alone":
                    classes = ("guaranteed", "best-effort") if way == "gate" else (None, None)
                    found, job = rig.run([
                        rig.start(_SERVE, classes[0], service, seconds, alone["rate"], LOAD),
                        rig.start(_TRAIN, classes[1], training, seconds),
                    ])  # fmt: skip
                    steps = f"{job['steps_per_s'] / trained[training]:.2f}"
                lines.append(
                    f"| {service} | {training} | {way} | {found['requests']} | {found['p50_ms']:.2f} | "
                    f"{found['p99_ms']:.2f} | {found['p99_ms'] / alone['p99_ms']:.2f} | {steps} |"
                )
                print(lines[-1], flush=True)
    return lines


def launches(rig: Rig) -> list[str]:
    lines = [
        "| class | launch, CPU us | launch, done us | graph of 20, CPU us | graph of 20, done us |",
        "|---|---|---|---|---|",
    ]
    for cls in (None, "guaranteed", "best-effort"):
        told = [rig.run([rig.start(_LAUNCHES, cls)], gated=False)[0] for _ in range(3)]
        figures = (median([one[name] for one in told]) for name in told[0])
        lines.append(f"| {cls or 'without the shim'} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
        print(lines[-1], flush=True)
    return lines


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--dry-run", action="store_true", help="print the plan")
    arguments.add_argument("--seconds", type=float, default=12, help="of each run of a pair")
    arguments.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs/measurements")
    options = arguments.parse_args()
    if options.dry_run:
        print("1. launches and graphs under PyTorch: without the shim, guaranteed, best-effort; 3 runs each")
        for service in SERVICES:
            for training in TRAININGS:
                print(f"2. {service} at load {LOAD:g} beside training of {training}: {', '.join(WAYS)}")
        for name, program in (("service", _SERVE), ("training", _TRAIN), ("launches", _LAUNCHES)):
            compile(program, name, "exec")
    try:
        driver = cuda.probe()
    except Unavailable as problem:
        print(f"There is no GPU here, and nothing was measured: {problem}")
        return 0
    if options.dry_run:
        return 0
    if not driver.devices or not cuda.shim().available:
        raise SystemExit(f"nothing was measured: {cuda.capability().detail}")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        Page.create(Path(folder) / "page", device=driver.devices[0].uuid).close()
        rig = Rig(Path(folder), driver.path, time.monotonic() + LIMIT_S)
        text = [
            "# Device isolation on a GPU",
            "",
            f"By `benchmarks/device_gpu.py` on one {driver.devices[0].name}, driver for CUDA "
            f"{driver.version[0]}.{driver.version[1]}; {json.dumps(machine())}. Weights are random, a request is one "
            "forward pass, and its latency counts from arrival.",
            "", *launches(rig), "", *pairs(rig, options.seconds), "",
        ]  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "device.md").write_text("\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
