"""Routes for the server's settings and what its machine offers. Both are read only, and for admins."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from typing import Any

from fastapi import Response

from shoal.contract import models
from shoal.control.api.context import Ctx
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import Who, answer

router = Router(tags=["system"])

_SECRET = re.compile(r"secret|password|token(?!s)|key", re.IGNORECASE)
_FILE = re.compile(r"(_|\.)(file|path)$")
_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")
HIDDEN = "(hidden)"


def hide(name: str, value: Any) -> Any:
    """A setting's value without what must not be read by others: a secret, or the user and password of an address."""
    if isinstance(value, dict):
        return {key: hide(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hide(name, inner) for inner in value]
    if not isinstance(value, str) or not value:
        return value
    return HIDDEN if _SECRET.search(name) and not _FILE.search(name) else _IN_URL.sub("", value)


@router.get(
    "/v1/settings", summary="Every setting of the server (admin)",
    responses={**shows(models.SettingList), **fails(403, 503)},
)  # fmt: skip
async def settings(context: Ctx, who: Who) -> Response:
    """As it was started: name, value, default and meaning. Secrets are hidden."""
    who.require_admin("see the server's settings")
    rows = [
        {"name": name, "value": hide(name, value), "changed": value != default, "text": text}
        for name, value, default, text in context.told.settings()
    ]
    return answer({"settings": rows})


@router.get(
    "/v1/doctor", summary="What the server's machine offers to jobs (admin)",
    responses={**shows(models.DoctorView), **fails(403, 503)},
)  # fmt: skip
async def doctor(context: Ctx, who: Who) -> Response:
    """As `shoal doctor` says it there: what works, what is missing, and what that costs. Tried for real at each
    request, one after the other."""
    who.require_admin("look at the server's machine")
    async with context.told.one_look:
        found = await asyncio.to_thread(context.told.doctor)
    stopped = any(one.stops_everything for one in found)
    return answer({"jobs_can_start": not stopped, "capabilities": [asdict(one) for one in found]})
