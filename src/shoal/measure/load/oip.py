"""The Open Inference Protocol (KServe V2, REST) as a client: any server that speaks it can be measured.

Beside the protocol proper it uses, where a server has them, the extensions `binary_tensor_data`, `statistics` and
`model_repository` as Triton defines them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import numpy as np

from shoal.core import Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable
from shoal.inference.protocol.values import read_datatype
from shoal.inference.types import TensorSpec
from shoal.measure.load import Encoding
from shoal.measure.load.inputs import encode, random_inputs
from shoal.measure.load.wire import Address, Pool, head
from shoal.measure.types import ServerTimes, Target, kind_of


@dataclass(frozen=True, slots=True)
class Counters:
    """The statistics endpoint's running totals: requests, batches, and sums of time over requests."""

    requests: int
    executions: int
    queue_s: float
    compute_s: float

    def since(self, before: Counters) -> ServerTimes | None:
        """Means over what came after `before`; None if nothing did (or the server began anew)."""
        requests = self.requests - before.requests
        if requests <= 0:
            return None
        return ServerTimes(
            requests,
            self.executions - before.executions,
            (self.queue_s - before.queue_s) / requests,
            (self.compute_s - before.compute_s) / requests,
        )


class Client:
    """Questions to one server, as an async context manager. Raises Unavailable where none answers, NotFound, Forbidden,
    Invalid, Overloaded or ShoalError as the server's status says."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 30.0) -> None:
        self.address = Address.parse(url)
        self._headers = bearer(token)
        self._timeout_s = timeout_s
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        self._pool = Pool(self.address, timeout_s=self._timeout_s)
        await self._pool.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._pool is not None
        await self._pool.close()

    async def takes_binary(self) -> bool:
        """Whether the server has the extension for binary tensors."""
        return "binary_tensor_data" in ((await self._ask("GET", "/v2")).get("extensions") or ())

    async def inputs(self, name: str, version: str | None = None) -> tuple[TensorSpec, ...]:
        """Those of a model, as the server describes it."""
        found = await self._ask("GET", model_path(name, version), model=name)
        try:
            return tuple(_input(one) for one in found.get("inputs") or ())
        except (KeyError, TypeError, ValueError) as error:
            raise ShoalError(
                f"the server's metadata of {name!r} cannot be read: {error!r}", where=self._where
            ) from None

    async def statistics(self, name: str, version: str | None = None) -> Counters | None:
        """None where the server keeps no statistics."""
        status, body = await self._send("GET", f"{model_path(name, version)}/stats")
        if status != 200:
            return None
        try:
            rows = [_counters(one) for one in json.loads(body)["model_stats"]]
        except (ValueError, KeyError, TypeError):
            return None
        return Counters(
            sum(row.requests for row in rows), sum(row.executions for row in rows),
            sum(row.queue_s for row in rows), sum(row.compute_s for row in rows),
        )  # fmt: skip

    async def models(self) -> tuple[str, ...]:
        """Names in the server's repository; none where it has no such index."""
        status, body = await self._send("POST", "/v2/repository/index", b"{}")
        try:
            return tuple(dict.fromkeys(str(one["name"]) for one in json.loads(body))) if status == 200 else ()
        except (ValueError, KeyError, TypeError):
            return ()

    async def load(self, name: str) -> None:
        """Returns when the model is ready."""
        await self._ask("POST", f"/v2/repository/models/{_quoted(name)}/load", b"{}", model=name)

    async def unload(self, name: str) -> None:
        await self._ask("POST", f"/v2/repository/models/{_quoted(name)}/unload", b"{}", model=name)

    async def model_ready(self, name: str, version: str | None = None) -> bool:
        status, _ = await self._send("GET", f"{model_path(name, version)}/ready")
        return status == 200

    async def infer(self, request: bytes) -> bytes:
        """One answer to a request made by `prepare`."""
        status, body = await self._exchange(request)
        if status != 200:
            raise await self._refusal(status, body, "", None)
        return body

    @property
    def _where(self) -> str:
        return str(self.address)

    async def _ask(self, method: str, path: str, body: bytes = b"", *, model: str | None = None) -> dict[str, Any]:
        status, answer = await self._send(method, path, body)
        if status != 200:
            raise await self._refusal(status, answer, path, model)
        try:
            found = json.loads(answer or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ShoalError(
                "the answer is not the Open Inference Protocol's",
                where=f"{self._where}{path}",
                hint="is this its port?",
            )
        return found

    async def _send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        headers = {**self._headers, **({"Content-Type": "application/json"} if body else {})}
        return await self._exchange(head(self.address, method, path, length=len(body), headers=headers) + body)

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        assert self._pool is not None, "the client is an async context manager"
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def ended(_: Any, status: int, __: float, body: bytes) -> None:
            if not answer.done():
                answer.set_result((status, body))

        self._pool.send(request, None, ended, want_body=True)
        status, body = await answer
        if status < 0:
            raise Unavailable(f"the server gave no answer: {kind_of(status)}", where=self._where)
        return status, body

    async def _refusal(self, status: int, body: bytes, path: str, model: str | None) -> ShoalError:
        said = _said(body)
        where = f"{self._where}{path}"
        # Servers differ: some say 400 to an unknown model.
        if model is not None and (status == 404 or (status == 400 and ("unknown" in said or "not found" in said))):
            known = await self.models()
            return NotFound(
                f"the server has no model {model!r}" + (f": {said}" if said else ""),
                where=self._where,
                hint=f"it has {', '.join(known[:20])}" if known else "check its name and version",
            )
        if status in (401, 403):
            return Forbidden(f"the server does not let you in: {said or status}", where=where, hint="give a token")
        if status == 429:
            return Overloaded(f"the server is busy: {said or status}", where=where)
        if status in (502, 503, 504):
            return Unavailable(f"the server is not ready: {said or status}", where=where)
        if 400 <= status < 500:
            hint = "look at the inputs' shapes and the encoding"
            return Invalid(f"the server refused the request (HTTP {status}): {said}", where=where, hint=hint)
        return ShoalError(f"the server failed (HTTP {status}): {said}", where=where)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A target's requests, ready for the wire."""

    target: Target
    address: Address
    requests: tuple[bytes, ...]
    binary: bool


async def prepare(
    target: Target, *, encoding: Encoding = Encoding.AUTO, seed: int = 0, timeout_s: float = 30.0, try_one: bool = True
) -> Prepared:
    """Look at the model, make its inputs, and (unless told otherwise) see that one request is answered.

    Raises what `Client` does, and Invalid where the inputs do not fit the model.
    """
    async with Client(target.url, token=target.token, timeout_s=timeout_s) as client:
        binary = encoding is Encoding.BINARY or (encoding is Encoding.AUTO and await client.takes_binary())
        specs = await client.inputs(target.model, target.version)
        made = (target.inputs or random_inputs())(specs, np.random.default_rng(seed))
        path = f"{model_path(target.model, target.version)}/infer"
        requests = []
        for inputs in made:
            body, json_length = encode(inputs, specs, binary=binary)
            headers = {**bearer(target.token), "Content-Type": "application/octet-stream"}
            if json_length is None:
                headers["Content-Type"] = "application/json"
            else:
                headers["Inference-Header-Content-Length"] = str(json_length)
            requests.append(head(client.address, "POST", path, length=len(body), headers=headers) + body)
        if try_one:
            await client.infer(requests[0])
    return Prepared(target, client.address, tuple(requests), binary)


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def model_path(name: str, version: str | None = None) -> str:
    if not name:
        raise Invalid("the model has no name", where="model")
    return f"/v2/models/{_quoted(name)}" + (f"/versions/{_quoted(version)}" if version else "")


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _input(described: Any) -> TensorSpec:
    name = str(described["name"])
    datatype = read_datatype(described["datatype"], f"input {name!r:.80}")
    return TensorSpec(name, datatype, tuple(int(size) for size in described["shape"]))


def _counters(row: Any) -> Counters:
    spent = row["inference_stats"]

    def seconds(*names: str) -> float:
        return sum(int(spent.get(name, {}).get("ns", 0)) for name in names) / 1e9

    return Counters(
        requests=int(spent["success"]["count"]),
        executions=int(row.get("execution_count", 0)),
        queue_s=seconds("queue"),
        compute_s=seconds("compute_input", "compute_infer", "compute_output"),
    )


def _said(body: bytes) -> str:
    """The server's own words, shortened; of a traceback what it ends with."""
    try:
        text = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", errors="replace")
    if "Traceback" in str(text):
        text = str(text).strip().rpartition("\n")[2]
    return " ".join(str(text).split())[:300]
