"""A service, a training job, or both in one process on streams of two priorities: roles.py MODELS ROLE ARGUMENTS.

MODELS is the module that has them. A program prints "ready", waits for a line, and prints one object of JSON.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

models: Any = importlib.import_module(sys.argv[1])


def warm(call: Callable[[], None], count: int) -> float:
    """Seconds of one."""
    for _ in range(count):
        call()
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def begin() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def serve(answer: Callable[[], None], alone_s: float, seconds: float, load: float, rate: float) -> dict[str, Any]:
    """Requests arrive by a Poisson process at `rate` a second (0: `load` of what it can do), and wait their turn."""
    rate = rate or load / alone_s
    draw, arrival = random.Random(1), time.perf_counter()
    end, latencies, services = arrival + seconds, [], []
    while arrival < end:
        time.sleep(max(0.0, arrival - time.perf_counter()))
        began = time.perf_counter()
        answer()
        latencies.append(time.perf_counter() - arrival)
        services.append(time.perf_counter() - began)
        arrival += draw.expovariate(rate)
    return {
        "rate": rate, "requests": len(latencies), "p50_ms": at(latencies, 0.5), "p99_ms": at(latencies, 0.99),
        "service_p99_ms": at(services, 0.99),
    }  # fmt: skip


def at(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)] * 1e3


def train(step: Callable[[], None], seconds: float) -> dict[str, Any]:
    began, steps = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        step()
        steps += 1
    return {"steps_per_s": steps / (time.perf_counter() - began)}


def service_program(name: str, mode: str, seconds: str, load: str, rate: str) -> dict[str, Any]:
    answer = models.request(name, mode)
    alone_s = warm(answer, 30)
    begin()
    return serve(answer, alone_s, float(seconds), float(load), float(rate))


def training_program(name: str, mode: str, seconds: str) -> dict[str, Any]:
    step = models.training(name, mode)
    warm(step, 3)
    begin()
    return train(step, float(seconds))


def durations_program(name: str, mode: str, bound_us: str) -> dict[str, Any]:
    """How much of a training step is kernels that are longer than the bound."""
    step = models.training(name, mode)
    warm(step, 3)
    begin()
    found = sorted(models.durations_us(step))
    long = [one for one in found if one > float(bound_us)]
    return {
        "kernels": len(found), "median_us": found[len(found) // 2], "longest_us": found[-1], "over": len(long),
        "time_over": sum(long) / sum(found),
    }  # fmt: skip


def both_program(name: str, mode: str, seconds: str, load: str, rate: str, job: str, job_mode: str) -> dict[str, Any]:
    """The service on a stream of high priority, the training in a thread on one of low priority."""
    steps: dict[str, Any] = {}
    built, go = threading.Event(), threading.Event()

    def trains() -> None:
        with models.on_stream(high=False):
            step = models.training(job, job_mode)
            warm(step, 3)
            built.set()
            go.wait()
            steps.update(train(step, float(seconds)))

    thread = threading.Thread(target=trains, daemon=True)
    thread.start()
    built.wait()
    with models.on_stream(high=True):
        answer = models.request(name, mode)
        alone_s = warm(answer, 30)
        begin()
        go.set()
        found = serve(answer, alone_s, float(seconds), float(load), float(rate))
    thread.join()
    return {**found, **steps}


if __name__ == "__main__":
    print(json.dumps(globals()[f"{sys.argv[2]}_program"](*sys.argv[3:])))
