"""A caller of the gateway for tests: numpy arrays in and out over HTTP, and the server's refusals as Shoal's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx
import numpy as np
import orjson
from numpy.typing import ArrayLike

from shoal.core import Overloaded, ShoalError, Unavailable
from shoal.inference import errors as inference
from shoal.inference.protocol import requests
from shoal.inference.runtime import Array
from shoal.inference.tensors import numpy_dtype, to_array, to_tensor
from shoal.inference.types import DataType, InferRequest, InferResponse, RequestedOutput, Tensor
from shoal.serve import errors
from shoal.serve.protocol.errors import NoSuchCall, Unauthorized

_KINDS: tuple[type[ShoalError], ...] = (
    inference.BadRequest, inference.BadModel, inference.ModelFailed, errors.DeadlineMissed, errors.NotReady,
    errors.RateLimited, errors.ReplicaLost, errors.BodyTooLarge, errors.UnknownModel,
    NoSuchCall, Unauthorized, Unavailable,
)  # fmt: skip
_BY_CODE = {kind.code: kind for kind in _KINDS}


class Result(dict[str, Array]):
    """The outputs by name, and what else the answer says."""

    def __init__(self, response: InferResponse) -> None:
        super().__init__((tensor.name, to_array(tensor)) for tensor in response.outputs)
        self.model, self.version, self.id = response.model, response.version, response.id


class InferenceClient:
    """Threads may share it. `patience_s` is how long it waits for a connection and for each answer."""

    def __init__(self, url: str, *, token: str | None = None, patience_s: float = 30.0) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}".rstrip()}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=patience_s, trust_env=False)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike],
        *,
        outputs: Sequence[str] = (),
        version: str | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        tensors = [to_tensor(name, np.asarray(value)) for name, value in inputs.items()]
        wanted = tuple(RequestedOutput(name, binary=True) for name in outputs)
        request = InferRequest(model, tensors, "", version, "", wanted, {}, timeout_s)
        header, binary = requests.encode(request)
        answer = self._ask("POST", _path(model, version, "/infer"), b"".join((header, *binary)), len(header))
        length = answer.headers.get("Inference-Header-Content-Length")
        return Result(read_answer(answer.content, None if length is None else int(length)))

    def live(self) -> bool:
        """Whether a server answers at all."""
        try:
            return self._holds("/v2/health/live")
        except Unavailable as error:
            if isinstance(error.__cause__, httpx.ConnectError):
                return False
            raise

    def ready(self) -> bool:
        return self._holds("/v2/health/ready")

    def model_ready(self, model: str, version: str | None = None) -> bool:
        return self._holds(_path(model, version, "/ready"))

    def metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        return dict(self._ask("GET", _path(model, version)).json())

    def statistics(self, model: str, version: str | None = None) -> list[dict[str, Any]]:
        return list(self._ask("GET", _path(model, version, "/stats")).json()["model_stats"])

    def index(self) -> list[dict[str, Any]]:
        return list(self._ask("POST", "/v2/repository/index").json())

    def load(self, model: str) -> None:
        self._ask("POST", f"/v2/repository/models/{model}/load")

    def unload(self, model: str) -> None:
        self._ask("POST", f"/v2/repository/models/{model}/unload")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _holds(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except errors.NotReady:
            return False
        return True

    def _ask(self, method: str, path: str, body: bytes = b"", header_length: int | None = None) -> httpx.Response:
        headers = {} if header_length is None else {"Inference-Header-Content-Length": str(header_length)}
        try:
            answer = self._http.request(method, path, content=body, headers=headers)
        except httpx.TransportError as error:
            raise Unavailable(f"no answer: {error}") from error
        if answer.status_code != 200:
            raise _refusal(answer)
        return answer


def read_answer(body: bytes, header_length: int | None) -> InferResponse:
    """The answer in `body`: a JSON header of that length, or the whole of it, then the binary outputs in order."""
    at = len(body) if header_length is None else header_length
    told = orjson.loads(body[:at])
    response = InferResponse(told["model_name"], told["model_version"], [], told.get("id", ""))
    response.parameters.update(told.get("parameters", {}))
    for entry in told["outputs"]:
        kind, shape = DataType(entry["datatype"]), tuple(entry["shape"])
        size = entry.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = to_tensor("y", np.array(entry["data"], numpy_dtype(kind))).data
        else:
            data, at = body[at : at + size], at + size
        response.outputs.append(Tensor(entry["name"], kind, shape, data))
    assert at == len(body)
    return response


def _path(model: str, version: str | None, what: str = "") -> str:
    return f"/v2/models/{model}{'' if version is None else f'/versions/{version}'}{what}"


def _refusal(answer: httpx.Response) -> ShoalError:
    told = orjson.loads(answer.content)
    kind = _BY_CODE[told["code"]]
    if issubclass(kind, Overloaded):
        return kind(told["error"], retry_after_s=told["retry_after_s"])
    return kind(told["error"])
