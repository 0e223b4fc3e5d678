"""Orders to make a job's environment, from its manifest and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from shoal.core import Fault, Sandbox
from shoal.engine import LaunchFailed, Limits, Mount
from shoal.environment.live.builder import Order
from shoal.environment.locked import read_locked
from shoal.environment.places import Place
from shoal.environment.reference import Image
from shoal.environment.section import EnvironmentJob
from shoal.environment.settings import EnvironmentSection
from shoal.extension import LiveJob

_OURS = ("UV_", "PIP_", "SSL_CERT_", "GIT_", "DOCKER_AUTH_CONFIG")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy", "netrc"})
"""Variables of a job that what makes its environment is given: where to look, and the keys to it."""
_UNPACKED_BYTES = 64 << 20
_LOG_BYTES = 8 << 20


def lock_order(
    job: LiveJob, asked: EnvironmentJob, settings: EnvironmentSection, folder: Path, sandbox: Sandbox,
    secrets: Mapping[str, str], bundles: Path, mounts: tuple[Mount, ...],
) -> Order:  # fmt: skip
    """Of the environment of a lock file. Raises Invalid and LaunchFailed. Blocks."""
    assert asked.uv is not None
    if job.manifest.bundle is None:
        raise LaunchFailed(
            "the job has no files, and so no lock file", fault=Fault.USER, where="environment.uv",
            hint="files: [pyproject.toml, uv.lock]",
        )  # fmt: skip
    env = passed_on(job.manifest.env)
    options = tuple(word for extra in asked.extras for word in ("--extra", extra))
    chosen = tuple(f"{name}={value}" for name, value in sorted(env.items()) if name.startswith("UV_"))
    locked = read_locked(bundles / job.manifest.bundle.removeprefix("sha256:"), asked.uv, (*options, *chosen))
    index = _index(settings, {**env, **secrets})
    told = {"key": locked.key, "options": options, "limit_bytes": settings.size, "env": index}
    place = Place(folder, asked.kind.value, locked.key)
    return Order(place, told, locked.files, env, passed_on(secrets), sandbox, limits_of(settings), mounts)


def _index(settings: EnvironmentSection, env: Mapping[str, str]) -> dict[str, str]:
    """What the settings say, where the job does not."""
    given = {"UV_DEFAULT_INDEX": settings.index, "UV_FIND_LINKS": settings.find_links}
    found = {name: value for name, value in given.items() if value and name not in env}
    return {**found, "UV_OFFLINE": "1"} if settings.offline else found


def image_order(
    job: LiveJob, image: Image, digest: str | None, settings: EnvironmentSection, folder: Path, sandbox: Sandbox,
    secrets: Mapping[str, str], known: Iterable[str], mounts: tuple[Mount, ...],
) -> Order:  # fmt: skip
    """Of an image, with the `digest` that is wanted of it. What a tenant `known`s is not made again."""
    source = image.source
    if digest is not None and image.pinned is not None:
        source = image.pinned.replace("KEY", digest)
    told = {
        "source": source, "pinned": image.pinned, "digest": digest, "known": sorted(known),
        "insecure": image.host in settings.insecure_registries, "timeout_s": int(settings.timeout),
        "most_bytes": settings.size, "most_files": settings.files,
        "home": str(folder.parents[1].resolve()),
    }  # fmt: skip
    place = Place(folder, "image", digest or "")
    env = passed_on(job.manifest.env)
    return Order(place, told, {}, env, passed_on(secrets), sandbox, limits_of(settings), mounts)


def passed_on(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_OURS) or name.lower() in _PROXIES}


def limits_of(settings: EnvironmentSection) -> Limits:
    """Of the tenant's whole folder."""
    return Limits(
        processes=4096, open_files=65_536, log_bytes=_LOG_BYTES, disk_bytes=settings.size,
        unpacked_bytes=_UNPACKED_BYTES, files=settings.files,
    )  # fmt: skip
