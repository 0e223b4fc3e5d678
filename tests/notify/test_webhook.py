"""Webhooks: which addresses are met, what is signed, and receivers that answer slowly, never, or with a redirect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from shoal.core import Invalid
from shoal.notify.send.addresses import allowed, check_mail_address, check_url, read_networks, shown_url
from shoal.notify.send.signing import headers, secret_of
from shoal.notify.send.webhook import Webhooks

from .kit import receiver
from .test_mail import silent

HERE = read_networks("127.0.0.0/8", "inward")


async def localhost(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%eth0",
        "fd00::1", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
        "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::1",
        "2002:a9fe:a9fe::", "2001:0:7f00:1::", "nonsense", "", "127.1", "0177.0.0.1",
    ],
)  # fmt: skip
def test_addresses_that_lead_inward_are_refused(address: str) -> None:
    assert not allowed(address, ())


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_addresses_of_the_internet_are_met(address: str) -> None:
    assert allowed(address, ())


def test_a_setting_opens_its_networks_and_no_others() -> None:
    open_ = read_networks("10.0.0.0/8, fd00::/8", "inward")
    assert allowed("10.1.2.3", open_)
    assert allowed("::ffff:10.1.2.3", open_)
    assert allowed("fd00::1", open_)
    assert not allowed("127.0.0.1", open_)
    assert not allowed("192.168.0.1", open_)
    assert not allowed("169.254.169.254", open_)
    with pytest.raises(Invalid, match="no network"):
        read_networks("10.0.0.1/8", "inward")


@given(st.ip_addresses())
def test_no_private_address_of_any_kind_is_met(address: object) -> None:
    if getattr(address, "is_private", False) or getattr(address, "is_link_local", False):
        assert not allowed(str(address), ())


@pytest.mark.parametrize(
    "url",
    ["", "hooks.example.org", "ftp://example.org/", "file:///etc/passwd", "https://", "https://user:pw@example.org/",
     "https://example.org/a b", "https://example.org:0/", "https://example.org:99999/", "https://exämple.org/",
     "https://example.org/\r\nHost: x", "https://[::1", "https://example.org/" + "x" * 2000],
)  # fmt: skip
def test_wrong_urls_are_refused(url: str) -> None:
    with pytest.raises(Invalid):
        check_url(url, "address")


def test_urls_of_both_kinds_are_kept_and_a_refusal_names_the_field() -> None:
    for url in ("https://x.org/a", "http://10.0.0.1:8080/a"):
        assert check_url(url, "to") == url
    for url in ("ftp://x.org/", "https://me@x.org/", "https:///x"):
        with pytest.raises(Invalid) as refused:
            check_url(url, "to")
        assert refused.value.where == "to"
    for address, domains in (("alice", frozenset()), ("alice@x.org", frozenset({"y.org"}))):
        with pytest.raises(Invalid) as refused:
            check_mail_address(address, "to", domains)
        assert refused.value.where == "to"


def test_a_shown_url_has_no_token() -> None:
    assert shown_url("https://hooks.slack.com/services/T0/B0/token?key=x") == "https://hooks.slack.com/..."


def test_signatures_are_those_of_standard_webhooks() -> None:
    import time

    secret, body = secret_of("ab" * 32), b'{"type": "shoal.news"}'
    signed = headers(secret, "key-1", time.time(), body)
    assert Webhook(secret).verify(body, signed) == {"type": "shoal.news"}
    assert {*signed} == {"webhook-id", "webhook-timestamp", "webhook-signature", "idempotency-key"}
    assert signed["idempotency-key"] == signed["webhook-id"] == "key-1"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body.replace(b"news", b"none"), signed)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_of("ac" * 32)).verify(body, signed)


async def test_a_name_that_means_another_address_at_the_connection_is_refused() -> None:
    """DNS rebinding: whatever a name meant before, what is connected to is what was looked at."""
    answers = iter([["93.184.216.34", "127.0.0.1"], ["169.254.169.254"], ["::1"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    with receiver() as hook:
        port = hook.url.split(":")[2].split("/")[0]
        for _ in range(3):
            outcome = await Webhooks((), 2.0, find=rebinding).post(f"http://rebind.example:{port}/", b"{}", {})
            assert outcome.error == "the address leads inward, and `notify.inward` does not open it"
            assert outcome.lasting
    assert not hook.requests


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "0"])
async def test_ways_to_write_this_machine_are_refused(host: str) -> None:
    from shoal.notify.live.sender import find_addresses

    async def find(name: str, port: int) -> Sequence[str]:
        return find_addresses(name, port)

    with receiver() as hook:
        port = hook.url.split(":")[2].split("/")[0]
        outcome = await Webhooks((), 5.0, find=find).post(f"http://{host}:{port}/", b"{}", {})
    assert outcome.error
    assert not hook.requests


async def test_plain_http_is_for_networks_of_the_site() -> None:
    async def outside(host: str, port: int) -> Sequence[str]:
        return ["93.184.216.34"]

    outcome = await Webhooks(HERE, 2.0, find=outside).post("http://example.org/", b"{}", {})
    assert "use https://" in outcome.error


async def test_a_redirect_is_not_followed() -> None:
    with receiver() as hook, receiver() as inner:
        hook.answer, hook.headers = lambda _: 307, {"location": inner.url}
        outcome = await Webhooks(HERE, 5.0, find=localhost).post(hook.url, b"{}", {"idempotency-key": "k"})
    assert outcome.error == "it answers 307: redirects are not followed"
    assert len(hook.requests) == 1
    assert not inner.requests


@pytest.mark.parametrize(("status", "lasting", "after"), [(500, False, 7.0), (404, False, 7.0), (410, True, 7.0)])
async def test_refusals(status: int, lasting: bool, after: float) -> None:
    with receiver() as hook:
        hook.answer, hook.headers = lambda _: status, {"retry-after": "7"}
        outcome = await Webhooks(HERE, 5.0, find=localhost).post(hook.url, b"{}", {})
    assert (outcome.error, outcome.lasting, outcome.retry_after_s) == (f"it answers {status}", lasting, after)


async def test_receivers_that_answer_slowly_or_never_cost_their_time_and_no_more() -> None:
    done = threading.Event()

    def slow(_: object) -> int:
        done.wait(30)
        return 204

    async with silent() as port:
        with receiver() as hook:
            hook.answer = slow
            posts = Webhooks(HERE, 0.3, find=localhost)
            urls = [hook.url, f"http://127.0.0.1:{port}/", f"https://127.0.0.1:{port}/"]
            found = await asyncio.gather(*(posts.post(url, b"{}", {}) for url in urls))
            done.set()
    assert {one.error for one in found} == {"no answer within 0.3 s"}


async def test_an_answer_that_drips_in_without_end_is_cut_off() -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        try:
            while True:
                writer.write(b"x-more: yes\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await Webhooks(HERE, 0.5, find=localhost).post(f"http://127.0.0.1:{port}/", b"{}", {})
        server.close()
    assert outcome.error


async def test_a_receiver_that_is_gone_and_one_that_cuts_the_line() -> None:
    with receiver() as hook:
        hook.answer = lambda _: 0
        cut = await Webhooks(HERE, 5.0, find=localhost).post(hook.url, b"{}", {})
    gone = await Webhooks(HERE, 5.0, find=localhost).post(hook.url, b"{}", {})
    assert cut.error.startswith("it cannot be reached")
    assert gone.error == "it cannot be reached: Connection refused"
