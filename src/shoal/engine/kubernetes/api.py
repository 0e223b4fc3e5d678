"""The API server, by lightkube: its answers in the words of our errors, and kept copies of what it watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from shoal.base import extras
from shoal.core import ShoalError, Unavailable
from shoal.engine.batch.job import NotTaken
from shoal.engine.kubernetes.settings import KubernetesSettings

if TYPE_CHECKING:
    from lightkube import AsyncClient

log = logging.getLogger(__name__)

_WATCH_S = 240
"""The API server ends a watch after this, and the next one goes on where it ended."""
_SILENCE_S = 60.0
"""A watch that is silent for so long after its end is cut off."""
_REMEMBERED = 1000
"""The number of deletions that are remembered while creations are answered."""
_RETRY_S = (0.2, 5.0)


class Exists(NotTaken):
    """An object of this name is there already."""


class Api:
    """Objects go in and out as the API's JSON has them. Raises Unavailable where nothing answers or our credentials are
    refused, NotTaken where it says no."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._client: AsyncClient | None = None
        self.server = ""

    async def open(self) -> None:
        try:
            from lightkube import AsyncClient, KubeConfig
            from lightkube.core.exceptions import ConfigError
        except ImportError as problem:
            raise Unavailable(
                "the Kubernetes client is not installed", where="kubernetes", hint=extras.install("kubernetes")
            ) from problem
        try:
            config = KubeConfig.from_env().get(self._settings.context or None)
            if config is None:
                raise ConfigError("no context is chosen")
            # The environment's proxies are not for a cluster that the kubeconfig names.
            self.server = str(config.cluster.server)
            self._client = AsyncClient(config, namespace=self._settings.namespace, trust_env=False)
        except (ConfigError, OSError, ValueError) as problem:
            hint = "set KUBECONFIG, or kubernetes.context, or run the server in a pod with a service account"
            raise Unavailable(f"there is no usable kubeconfig: {problem}", where="kubernetes", hint=hint) from problem

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def create(self, what: Mapping[str, Any]) -> dict[str, Any]:
        kind = _kinds()[str(what["kind"])]
        with _errors():
            made = await self._open().create(kind.from_dict(dict(what)))
        return _plain(made)

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        with _errors():
            return _plain(await self._open().get(_kinds()[kind], name))

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> tuple[list[dict[str, Any]], str]:
        """The objects, and the version of the collection."""
        with _errors():
            answer = self._open().list(_kinds()[kind], labels=dict(labels or {}) or None)
            found = [_plain(each) async for each in answer]
            return found, str(answer.resourceVersion)

    async def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """The object as it then is: what the change names is set in it."""
        from lightkube.types import PatchType

        with _errors():
            return _plain(await self._open().patch(_kinds()[kind], name, dict(change), patch_type=PatchType.MERGE))

    async def delete(self, kind: str, name: str) -> None:
        """With all that belongs to it. One that is not there is no error."""
        from lightkube.types import CascadeType

        with contextlib.suppress(Missing), _errors():
            await self._open().delete(_kinds()[kind], name, cascade=CascadeType.BACKGROUND)

    async def watch(
        self, kind: str, version: str, labels: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What changes after that version, until the API server ends the watch. Raises TooOld for a version that it has
        forgotten."""
        stream: Any = self._open().watch(
            _kinds()[kind], labels=dict(labels or {}) or None, resource_version=version, server_timeout=_WATCH_S
        )
        with _errors():
            while True:
                try:
                    async with asyncio.timeout(_WATCH_S + _SILENCE_S):
                        change, each = await anext(stream)
                except TimeoutError as problem:
                    raise Unavailable("a watch is silent", where="kubernetes") from problem
                except StopAsyncIteration:
                    return
                yield change, _plain(each)

    async def serves(self, kind: str) -> bool:
        """Whether the API server knows this kind, and lets us use it."""
        with contextlib.suppress(NotTaken):
            await self.list(kind)
            return True
        return False

    def _open(self) -> AsyncClient:
        if self._client is None:
            raise Unavailable("the engine is not open", where="kubernetes")
        return self._client


class Missing(NotTaken):
    """There is no such object."""


class TooOld(NotTaken):
    """What happened since then was forgotten: list anew."""


@contextlib.contextmanager
def _errors() -> Any:
    """What the client raises, in the words of our errors."""
    from httpx2 import HTTPError
    from msgspec import MsgspecError

    try:
        yield
    except MsgspecError as problem:
        raise Unavailable(f"an answer of the API server cannot be read: {problem}", where="kubernetes") from problem
    except HTTPError as problem:  # lightkube's ApiError is one
        raise _refusal(problem) from problem
    except OSError as problem:
        raise Unavailable(f"the API server does not answer: {problem}", where="kubernetes") from problem


def _refusal(problem: Any) -> ShoalError:
    status = getattr(problem, "status", None)
    code = status.code if status is not None else getattr(getattr(problem, "response", None), "status_code", None)
    said = str(problem) or type(problem).__name__
    if code == 401:
        hint = "has the token lapsed? Renew it; nothing is lost meanwhile"
        return Unavailable(f"the API server does not accept our credentials: {said}", where="kubernetes", hint=hint)
    kind = {404: Missing, 409: Exists, 410: TooOld}.get(code or 0)
    if kind is not None:
        return kind(said, where="kubernetes")
    if code is not None and code < 500 and code != 429:
        role = "see the role in docs/how-to/kubernetes-cluster.md" if code == 403 else None
        return NotTaken(said, where="kubernetes", hint=role)
    return Unavailable(f"the API server does not answer: {said}", where="kubernetes", hint="is the cluster up?")


def _kinds() -> dict[str, Any]:
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.resources.batch_v1 import Job
    from lightkube.resources.core_v1 import Node, Pod, Secret, Service

    group = create_namespaced_resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
    return {"Job": Job, "Pod": Pod, "Node": Node, "Service": Service, "Secret": Secret, "PodGroup": group}


def _plain(each: Any) -> dict[str, Any]:
    found: dict[str, Any] = each.to_dict()
    return found


class Mirror:
    """What the API server has of a kind, followed by a watch. `changed` is called after each change."""

    def __init__(
        self, api: Api, kind: str, changed: Callable[[], None], labels: Mapping[str, str] | None = None
    ) -> None:
        self._api = api
        self._kind = kind
        self._labels = labels
        self._changed = changed
        self.gone: Callable[[dict[str, Any]], None] = lambda _: None
        """Called with what was deleted, as it was last."""
        self._objects: dict[str, dict[str, Any]] = {}
        self._deleted: deque[str] = deque(maxlen=_REMEMBERED)
        self._version = ""
        self._trouble: ShoalError | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises where the first list fails."""
        await self.refresh()
        self._task = asyncio.create_task(self._run(), name=f"kubernetes-{self._kind}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def objects(self) -> list[dict[str, Any]]:
        """Raises Unavailable while the API server cannot be followed."""
        if self._trouble is not None:
            raise Unavailable(self._trouble.what, where=self._trouble.where, hint=self._trouble.hint)
        return list(self._objects.values())

    def name_of(self, uid: str) -> str:
        """Empty where there is none now."""
        return str(self._objects[uid]["metadata"]["name"]) if uid in self._objects else ""

    def add(self, each: dict[str, Any]) -> None:
        """One that was just made: the watch tells of it later, or has told of its end already."""
        uid = each["metadata"]["uid"]
        if uid not in self._deleted:
            self._objects.setdefault(uid, each)

    async def refresh(self) -> None:
        """List anew."""
        found, self._version = await self._api.list(self._kind, self._labels)
        self._objects = {each["metadata"]["uid"]: each for each in found}
        self._trouble = None
        self._changed()

    async def _run(self) -> None:
        wait_s = _RETRY_S[0]
        while True:
            try:
                if self._trouble is not None:
                    await self.refresh()
                async for change, each in self._api.watch(self._kind, self._version, self._labels):
                    wait_s = _RETRY_S[0]
                    self._take(change, each)
            except TooOld as problem:
                self._trouble = problem
                continue
            except (Unavailable, NotTaken) as problem:
                self._trouble = problem
                self._changed()
            except Exception as problem:  # whatever was told: to follow nothing more would be worse
                log.exception("following %s failed", self._kind)
                self._trouble = Unavailable(f"an event cannot be read: {problem!r}", where="kubernetes")
                self._changed()
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _RETRY_S[1])

    def _take(self, change: str, each: dict[str, Any]) -> None:
        metadata = each["metadata"]
        self._version = metadata["resourceVersion"]
        if change == "BOOKMARK":
            return
        if change == "DELETED":
            self._objects.pop(metadata["uid"], None)
            self._deleted.append(metadata["uid"])
            self.gone(each)
        else:
            self._objects[metadata["uid"]] = each
        self._changed()
