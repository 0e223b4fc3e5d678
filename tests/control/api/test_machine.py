"""How the server is set and what its machine offers, as admins see it."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.control.api.machine import HIDDEN, hide
from shoal.control.api.told import Told
from shoal.core import Capability
from tests.control.api.conftest import House


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("db", "postgresql://shoal:hunter2@db.example.org/shoal", "postgresql://db.example.org/shoal"),
        ("notify.smtp_password", "hunter2", HIDDEN),
        ("notify.smtp_password_file", "/etc/shoal/smtp", "/etc/shoal/smtp"),
        ("web.oidc", {"client_secret": "hunter2", "issuer": "https://x.org"},
         {"client_secret": HIDDEN, "issuer": "https://x.org"}),
        ("some.key", "", ""), ("tokens.burst", 1000, 1000), ("results.urls", ["https://a:hunter2@b/"], ["https://b/"]),
    ],
)  # fmt: skip
def test_a_secret_is_hidden(name: str, value: Any, shown: Any) -> None:
    assert hide(name, value) == shown


@pytest.mark.virtual_time
async def test_settings_and_doctor_are_for_admins(house: House) -> None:
    house.context.told = Told(
        lambda: [("slots", 4, None, "CPU slots"), ("host", "127.0.0.1", "127.0.0.1", "an address")],
        lambda: [Capability("memory", True, "16 GiB"), Capability("pidfd", False, "none", "a cost")],
    )
    async with house.client() as client:
        settings = (await client.get("/v1/settings")).json()["settings"]
        assert [(one["name"], one["value"], one["changed"]) for one in settings] == [
            ("slots", 4, True), ("host", "127.0.0.1", False),
        ]  # fmt: skip
        found = (await client.get("/v1/doctor")).json()
        assert found["jobs_can_start"]
        assert [one["name"] for one in found["capabilities"]] == ["memory", "pidfd"]
    async with house.client("red") as client:
        for path in ("/v1/settings", "/v1/doctor"):
            assert (await client.get(path)).status_code == 403
