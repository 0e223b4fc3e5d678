"""Sequences through a gateway with processes: over HTTP and gRPC, killed and replaced in mid-sequence."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from shoal.inference.types import ModelSpec
from tests.serve.gateway_kit import deployment, eventually, home, service, standalone
from tests.serve.models import SUMS, running_sum


def sums(folder: Path, **more: Any) -> ModelSpec:
    return ModelSpec("m", str(running_sum(folder / "sum.onnx")), max_batch=8, state=SUMS, **more)


class Caller:
    """Triton's own client, over HTTP or gRPC."""

    def __init__(self, kind: Any, address: str) -> None:
        self.kind = kind
        self.client = kind.InferenceServerClient(address)

    def __call__(self, value: float, id_: Any = 7, *, start: bool = False, end: bool = False) -> float:
        given = self.kind.InferInput("x", [1, 1], "FP32")
        given.set_data_from_numpy(np.array([[value]], np.float32))
        found = self.client.infer("m", [given], sequence_id=id_, sequence_start=start, sequence_end=end)
        return float(found.as_numpy("y").item())


@pytest.mark.few(count=2)
@pytest.mark.parametrize("kind", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("id_", [7, "seven"])
def test_triton_clients_keep_their_sequences(tmp_path: Path, kind: Any, id_: Any) -> None:
    with standalone(tmp_path, [service("s", [sums(tmp_path)])]) as live:
        port = live.process.http.port if kind is tritonclient.http else live.process.grpc.port
        call = Caller(kind, f"127.0.0.1:{port}")
        with pytest.raises(InferenceServerException, match="there is no sequence"):
            call(1, id_)
        assert call(1, id_, start=True) == 1
        assert call(2, id_) == 3
        assert call(5, 99, start=True) == 5
        assert call(4, id_, end=True) == 7
        assert call(5, 99) == 10
        with pytest.raises(InferenceServerException, match="there is no sequence"):
            call(1, id_)
        with pytest.raises(InferenceServerException, match="belongs to no sequence"):
            call(1, 0)


def test_a_stream_keeps_the_order_of_its_steps(tmp_path: Path) -> None:
    found: list[Any] = []
    with standalone(tmp_path, [service("s", [sums(tmp_path)])]) as live:
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{live.process.grpc.port}")
        client.start_stream(lambda result, error: found.append(error or float(result.as_numpy("y").item())))
        for number in range(50):
            given = tritonclient.grpc.InferInput("x", [1, 1], "FP32")
            given.set_data_from_numpy(np.array([[1]], np.float32))
            client.async_stream_infer(
                "m", [given], sequence_id=3, sequence_start=number == 0, sequence_end=number == 49
            )
        eventually(lambda: len(found) == 50)
        client.stop_stream()
    assert found == [float(number) for number in range(1, 51)]


def test_kill_9_in_mid_sequence_is_a_409_until_it_is_begun_again(tmp_path: Path) -> None:
    with standalone(tmp_path, [service("s", [sums(tmp_path)])]) as live:
        call = Caller(tritonclient.http, f"127.0.0.1:{live.process.http.port}")
        call(1, start=True)
        call(2)
        replica = live.alone.replicas["ada.s-0-1"]
        before = replica.starts
        os.killpg(replica.pid or 0, signal.SIGKILL)
        eventually(lambda: replica.starts > before and live.gateway.ready())
        with pytest.raises(InferenceServerException, match=r"sequence 7 is lost: .*2 of its steps") as caught:
            call(3)
        assert caught.value.status() == "409"
        assert call(5, start=True) == 5
        assert call(5) == 10


@pytest.mark.slow
def test_a_rollout_in_mid_sequence_waits_for_it_and_new_ones_go_to_the_new_replica(tmp_path: Path) -> None:
    first = service("s", [sums(tmp_path)])
    with home(tmp_path) as made:
        made.configure(deployment(first))
        made.start()
        made.replicas("s", 1, "old")
        eventually(lambda: _ready(made) == {"old"})
        call = Caller(tritonclient.http, f"127.0.0.1:{made.status.http.port}")
        assert call(1, 1, start=True) == 1
        made.configure(deployment(first), deployment(service("s", [sums(tmp_path)]), generation=2))
        made.replicas("s", 2, "new")
        eventually(lambda: _ready(made) == {"old", "new"})
        old = made.spawned["old"]
        os.kill(old.pid or 0, signal.SIGTERM)
        eventually(lambda: _ready(made) == {"new"})
        assert call(10, 2, start=True) == 10
        assert call(2, 1) == 3
        assert call(10, 2) == 20
        assert old.starts == 1
        assert call(3, 1, end=True) == 6
        eventually(lambda: old.starts > 1)  # it ended by itself, and its keeper started it again
        assert call(10, 2) == 30


@pytest.mark.slow
def test_a_new_gateway_knows_of_no_sequence_and_its_replicas_keep_none(tmp_path: Path) -> None:
    with home(tmp_path) as made:
        made.configure(deployment(service("s", [sums(tmp_path)])))
        made.start()
        made.replicas("s", 1, "r")
        eventually(lambda: _ready(made) == {"r"})
        assert Caller(tritonclient.http, f"127.0.0.1:{made.status.http.port}")(1, start=True) == 1
        made.end(signal.SIGKILL)
        made.start()
        eventually(lambda: _ready(made) == {"r"})
        call = Caller(tritonclient.http, f"127.0.0.1:{made.status.http.port}")
        with pytest.raises(InferenceServerException, match="there is no sequence 7"):
            call(1)
        assert call(2, start=True) == 2
        assert made.spawned["r"].starts == 1


def _ready(made: Any) -> set[str]:
    found = made.service("s")
    return set(found.ready) if found is not None else set()
