"""Mail over a real mail server: TLS, logins, refusals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import Invalid
from shoal.notify.live.settings import NotifySection
from shoal.notify.records import Delivery, News, State, Topic
from shoal.notify.send.addresses import check_mail_address
from shoal.notify.send.mail import Door, send

from .kit import PASSWORD, mail_server

NEWS = News(Topic.ENDED, "team", 1_700_000_000.0, "job/j-1/ended", "job train succeeded", "j-1")
DELIVERY = Delivery("0" * 32, "mailto:team:a@b.org", "team", 1_700_000_000.0, State.WAITING, 0, 0.0, None, "", (NEWS,))


def door(port: int, folder: Path, authorities: Path, **more: object) -> Door:
    (folder / "password").write_text(PASSWORD + "\n")
    made = Door("127.0.0.1", port, "starttls", "shoal@example.org", "shoal", str(folder / "password"), str(authorities))
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_mail_goes_over_tls_with_a_login_and_says_the_same_each_time(tmp_path: Path, security: str) -> None:
    with mail_server(tmp_path, starttls=security == "starttls") as server:
        told = door(server.port, tmp_path, server.authorities, security=security)
        for _ in range(2):
            assert not (await send(told, "alice@example.org", DELIVERY)).error
    first, second = server.mails
    assert first.encrypted
    assert first.user == "shoal"
    assert first.recipients == ["alice@example.org"]
    assert first.message["Subject"] == "Shoal: job train succeeded"
    assert first.message["Message-ID"] == second.message["Message-ID"] == f"<{DELIVERY.id}@example.org>"
    assert first.message["Idempotency-Key"] == DELIVERY.id
    assert first.message.as_bytes() == second.message.as_bytes()
    assert "job train succeeded  (j-1)" in first.text


async def test_what_a_mail_server_refuses_is_told_without_secrets(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with mail_server(tmp_path) as server, mail_server(other) as stranger:
        good = door(server.port, tmp_path, server.authorities)
        server.refused.add("nobody@example.org")
        refused = await send(good, "nobody@example.org", DELIVERY)
        assert refused.error == "the mail server refuses the recipient (550)"
        assert refused.lasting
        unknown = await send(door(stranger.port, tmp_path, server.authorities), "alice@example.org", DELIVERY)
        assert "cannot be used" in unknown.error  # another's certificate
        (tmp_path / "password").write_text("wrong")
        login = await send(good, "alice@example.org", DELIVERY)
        assert "refuses the name or the password (535)" in login.error
        plain = await send(replace(good, security="none", user=""), "alice@example.org", DELIVERY)
        assert "530" in plain.error
    assert not server.mails
    assert not stranger.mails
    gone = await send(good, "alice@example.org", DELIVERY)
    assert "cannot be used" in gone.error
    assert not any(PASSWORD in one.error for one in (refused, unknown, login, plain, gone))


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """Takes connections and says nothing."""

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    done = asyncio.Event()
    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        done.set()
        server.close()


async def test_a_mail_server_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    async with silent() as port:
        never = Door("127.0.0.1", port, "none", "shoal@example.org", timeout_s=0.2)
        assert (await send(never, "alice@example.org", DELIVERY)).error == "the mail server did not answer within 0.2 s"


async def test_a_title_cannot_add_headers() -> None:
    title = "job x failed\r\nBcc: other@example.org\n\nhello"
    from shoal.notify.send.mail import message

    made = message(replace(DELIVERY, news=(replace(NEWS, title=title),)), "a@b.org", "shoal@example.org")
    assert made["Bcc"] is None
    assert "\n" not in made["Subject"].strip()


@pytest.mark.parametrize(
    "address",
    ["", "alice", "@b.org", "a@b@c.org", "a b@c.org", "a@b.org\nBcc: x@y.org", "-oX@b.org", "a@-b.org", "a@b..org",
     "ä@b.org", "<a@b.org>", "a@" + "b" * 300],
)  # fmt: skip
def test_wrong_addresses_are_refused(address: str) -> None:
    with pytest.raises(Invalid):
        check_mail_address(address, "to")


def test_mail_goes_to_the_domains_that_are_allowed() -> None:
    assert check_mail_address("a@Example.org", "to", frozenset({"example.org"})) == "a@Example.org"
    with pytest.raises(Invalid, match=r"no mail goes to other\.org"):
        check_mail_address("a@other.org", "to", frozenset({"example.org"}))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"smtp_user": "shoal"}, "the password lacks"),
        ({"smtp_user": "shoal", "smtp_password_file": "/nowhere"}, "no such file"),
        ({"smtp_user": "shoal", "smtp_password_file": __file__, "smtp_security": "none"}, "in the clear"),
        ({"sender": "shoal"}, "no mail address"),
    ],
)
def test_settings_that_would_not_work_or_give_the_password_away(given: dict[str, str], wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        NotifySection.model_validate({"smtp_host": "mail.example.org", **given}).door()
