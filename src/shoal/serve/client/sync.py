"""The client for threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any, Self, TypeVar
from urllib.parse import quote

import numpy as np
import orjson
from numpy.typing import ArrayLike

from shoal.core import Overloaded, ShoalError, Unavailable
from shoal.serve.client.channel import Answer, Channel, ConnectionBroken, NoConnection, Server
from shoal.serve.client.segment import Segment, room_for
from shoal.serve.errors import BadRequest, DeadlineMissed, ModelFailed, NotReady, ReplicaLost
from shoal.serve.protocol import requests, responses
from shoal.serve.protocol.regions import Place
from shoal.serve.runtimes.base import Array
from shoal.serve.tensors import to_array, to_tensor
from shoal.serve.types import InferRequest, InferResponse, Parameter, RequestedOutput, Tensor

log = logging.getLogger("shoal.serve.client")

Told = TypeVar("Told")

_FAREWELL_S = 1.0
_WAY_BACK_S = 1.0
"""A request is given up by the server when its answer is of no use any more: its refusal should still get here."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 30.0


class Result(dict[str, Array]):
    """The outputs by name. Arrays are read-only views of what was received; strings are object arrays of `bytes`."""

    def __init__(self, response: InferResponse) -> None:
        super().__init__((tensor.name, to_array(tensor)) for tensor in response.outputs)
        self.model = response.model
        self.version = response.version
        """The version that answered."""
        self.id = response.id
        self.parameters = response.parameters


class InferenceClient:
    """Asks a server over HTTP. Threads may share it: each call in flight has a connection of its own.

    `token` is the tenant's bearer token. `patience_s` is how long to wait for a connection, and for an answer where
    `infer` is not told a timeout. `retries` is how often to ask again where that is safe: never, unless told to.
    `shared_memory` puts inputs into shared memory, for a server on this machine that runs as the same user; where it
    does not take them so, they are sent.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        patience_s: float = 60.0,
        retries: int = 0,
        shared_memory: bool = False,
    ) -> None:
        self._server = Server.of(url)
        self._token = token
        self._patience_s = patience_s
        self._retries = retries
        self._shared_memory = shared_memory
        self._free: list[_Line] = []

    def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike | Tensor],
        *,
        outputs: Sequence[str] = (),
        version: str | None = None,
        timeout_s: float | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        id: str = "",  # the protocol's name
    ) -> Result:
        """Run a model on arrays by input name; returns arrays by output name, all of them unless `outputs` names some.

        `timeout_s` is how long the answer is of use: the server gives up a request that it cannot answer in time, with
        DeadlineMissed. A `Tensor` among the inputs is sent as it is (for BF16, which numpy lacks). Raises BadRequest
        for an array that the protocol cannot carry.
        """
        tensors = [_tensor(name, value) for name, value in inputs.items()]
        wanted = tuple(RequestedOutput(name, binary=True) for name in outputs)
        request = InferRequest(model, tensors, "", version, id, wanted, dict(parameters or {}), timeout_s)
        path = _path(model, version, "infer")
        patience_s = self._patience_s if timeout_s is None else timeout_s + _WAY_BACK_S

        def ask(line: _Line) -> Answer:
            places = self._share(line, tensors) if self._shared_memory else {}
            header, binary = requests.encode(request, places=places)
            return line.channel.call("POST", path, header, binary, patience_s=patience_s)

        answer = self._on_a_line(ask)
        try:
            return Result(responses.decode(answer.body, answer.header_length))
        except BadRequest as error:  # not the caller's fault
            raise Unavailable(f"the server's answer cannot be understood: {error}") from None

    def live(self) -> bool:
        """Whether a server answers at all."""
        return self._holds("/v2/health/live")

    def ready(self) -> bool:
        """Whether the server has loaded every model that it should have."""
        return self._holds("/v2/health/ready")

    def model_ready(self, model: str, version: str | None = None) -> bool:
        """Raises UnknownModel."""
        return self._holds(_path(model, version, "ready"))

    def server(self) -> dict[str, Any]:
        """The protocol's document about the server: its name, version and extensions."""
        return self._document("/v2")

    def metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        """The protocol's document about a model: its versions, inputs and outputs."""
        return self._document(_path(model, version))

    def statistics(self, model: str | None = None, version: str | None = None) -> list[dict[str, Any]]:
        """Per model and version: counts, and times in nanoseconds."""
        path = "/v2/models/stats" if model is None else _path(model, version, "stats")
        return list(self._document(path)["model_stats"])

    def index(self, *, ready_only: bool = False) -> list[dict[str, Any]]:
        """The models and versions that there are, and their states."""
        return self._ask("POST", "/v2/repository/index", orjson.dumps({"ready": ready_only})).json(list)

    def load(self, model: str) -> None:
        """Returns when the model is ready. Raises UnknownModel, BadModel."""
        self._ask("POST", f"/v2/repository/models/{quote(model, safe='')}/load")

    def unload(self, model: str) -> None:
        self._ask("POST", f"/v2/repository/models/{quote(model, safe='')}/unload")

    def close(self) -> None:
        """Give back connections and shared memory. The client may be used again."""
        while self._free:
            self._free.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _holds(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except (NoConnection, NotReady):
            return False
        return True

    def _document(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path).json(dict)

    def _ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        return self._on_a_line(lambda line: line.channel.call(method, path, body, patience_s=self._patience_s))

    def _on_a_line(self, act: Callable[[_Line], Told]) -> Told:
        for tried in range(self._retries + 1):
            try:
                with self._line() as line:
                    return act(line)
            except ShoalError as error:
                if tried == self._retries or not _may_retry(error):
                    raise
                pause_s = error.retry_after_s if isinstance(error, Overloaded) else _FIRST_PAUSE_S * 2**tried
            sleep(min(pause_s, _LONGEST_PAUSE_S))
        raise AssertionError("retries must not be negative")

    @contextmanager
    def _line(self) -> Iterator[_Line]:
        line = self._idle_line() or _Line(Channel(self._server, self._token, self._patience_s))
        try:
            yield line
        finally:
            if line.channel.reusable:
                self._free.append(line)
            else:
                line.close()

    def _idle_line(self) -> _Line | None:
        while self._free:
            line = self._free.pop()
            if line.channel.is_open():
                return line
            line.close()
        return None

    def _share(self, line: _Line, tensors: Sequence[Tensor]) -> dict[str, Place]:
        """Put the tensors into the line's segment, after making one that is large enough if need be."""
        room = room_for(tensors)
        if line.segment is None or line.segment.size < room:
            try:
                line.take(Segment(room), self._patience_s)
            except (NoConnection, ConnectionBroken):
                raise
            except (OSError, ShoalError) as error:
                self._shared_memory = False
                log.warning("%s takes no inputs in shared memory, they are sent: %s", self._server, error)
                return {}
        assert line.segment is not None
        return line.segment.put(tensors)


class _Line:
    """A channel, and the shared memory segment that goes with it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.segment: Segment | None = None

    def take(self, segment: Segment, patience_s: float) -> None:
        """Use this segment from now on. Raises what the server refuses it with."""
        told = orjson.dumps({"key": segment.key, "offset": 0, "byte_size": segment.size})
        try:
            self.channel.call("POST", _region(segment, "register"), told, patience_s=patience_s)
        except ShoalError:
            segment.close()
            raise
        segment.hide()
        self.drop(patience_s)
        self.segment = segment

    def drop(self, patience_s: float) -> None:
        segment, self.segment = self.segment, None
        if segment is not None:
            segment.close()
            with suppress(ShoalError):
                self.channel.call("POST", _region(segment, "unregister"), patience_s=patience_s)

    def close(self) -> None:
        if self.channel.reusable and self.channel.is_open():
            self.drop(_FAREWELL_S)
        elif self.segment is not None:
            self.segment.close()
        self.channel.close()


def _path(model: str, version: str | None, what: str = "") -> str:
    steps = ["/v2/models", quote(model, safe="")]
    if version is not None:
        steps += ["versions", quote(version, safe="")]
    return "/".join([*steps, what] if what else steps)


def _region(segment: Segment, what: str) -> str:
    return f"/v2/systemsharedmemory/region/{segment.name}/{what}"


def _tensor(name: str, value: ArrayLike | Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return Tensor(name, value.datatype, value.shape, value.data)
    array = np.asarray(value)
    try:
        return to_tensor(name, array)
    except ModelFailed:
        raise BadRequest(
            f"the protocol has no datatype for an array of {array.dtype}", where=f"input {name!r:.80}", hint="cast it"
        ) from None


def _may_retry(error: ShoalError) -> bool:
    """Whether asking again is safe and of use: nothing was sent, the server was too busy, or a replica died at it."""
    return isinstance(error, NoConnection | ReplicaLost | Overloaded) and not isinstance(error, DeadlineMissed)
