"""Sign-in at an identity provider: who gets in with which rights, and what a lying provider reaches."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from shoal.contract.principal import TokenRole
from shoal.core import Invalid
from shoal.web.oidc import WAIT_S, Client, Provider, check_client, is_endpoint
from shoal.web.oidc_api import is_own_place
from shoal.web.rights import Right, read_rights, right_of, write_rights
from tests.web.conftest import PAGE, WebHouse
from tests.web.provider import CLIENT, ISSUER, SECRET, SmallProvider, follow

pytestmark = pytest.mark.virtual_time

RIGHTS = read_rights("ops=admin,ml=red:member,guests=red:viewer,ml=blue,lost=nowhere")
CALLBACK = "/v1/web/oidc/callback"


def with_provider(house: WebHouse, **options: Any) -> SmallProvider:
    """The server signs people in at this one from now on."""
    provider = SmallProvider(**options)
    client = Client(ISSUER, CLIENT, SECRET, "openid email groups", "groups", RIGHTS)
    transport = httpx.ASGITransport(provider.app)
    house.web.oidc = Provider(client, house.world.clock, transport=transport)
    return provider


async def sign_in(house: WebHouse, provider: SmallProvider, query: str = "", browser: Any = None) -> tuple[Any, Any]:
    """The browser, and the last answer of the server."""
    browser = browser or house.browser()
    begun = await browser.get(f"/v1/web/oidc/start{query}")
    assert begun.status_code == 302, begun.text
    assert begun.headers["location"].startswith(f"{ISSUER}/authorize?")
    return browser, await browser.get(provider.authorize(follow(begun.headers["location"])))


def refused(answer: Any) -> str:
    """The words with which the page is told that a sign-in failed."""
    assert answer.status_code == 302
    path, _, told = answer.headers["location"].partition("#error=")
    assert path == "/ui/", answer.headers["location"]
    assert "SameSite=strict" not in answer.headers.get("set-cookie", "")
    return unquote(told)


@pytest.mark.parametrize(
    ("groups", "tenant", "role"),
    [(["ops", "ml"], None, "admin"), (["other", "ml"], "red", "member"), (["guests"], "red", "viewer"),
     ("ml", "red", "member"), ("staff guests", "red", "viewer")],
)  # fmt: skip
async def test_groups_give_rights(house: WebHouse, groups: object, tenant: str | None, role: str) -> None:
    provider = with_provider(house, claims={"groups": groups, "email": "ada@example.org"})
    browser, answer = await sign_in(house, provider, "?next=/ui/jobs?state=running")
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"] == "/ui/jobs?state=running"
    told = (await browser.get("/v1/web/session")).json()
    assert (told["tenant"], told["role"], told["name"], told["oidc"]) == (tenant, role, "ada@example.org", True)
    manifest = {"name": "by-ada", "command": ["run"], "tenant": "red"}
    made = await browser.post("/v1/jobs", json=manifest, headers=PAGE)
    assert made.status_code == (403 if role == "viewer" else 201), made.text
    assert (await browser.post("/v1/jobs", json=manifest)).status_code == 403
    await house.restart()
    secret = browser.cookies[house.web.cookie]
    assert (await house.browser(cookies={house.web.cookie: secret}).get("/v1/jobs")).status_code == 200


async def test_a_person_of_several_tenants_chooses_one(house: WebHouse) -> None:
    provider = with_provider(house, claims={"groups": ["ml"]})
    browser, _ = await sign_in(house, provider, "?tenant=blue")
    assert (await browser.get("/v1/web/session")).json()["tenant"] == "blue"
    assert "no group" in refused((await sign_in(house, provider, "?tenant=default"))[1])


async def test_groups_may_be_told_by_userinfo_alone(house: WebHouse) -> None:
    provider = with_provider(house, told_later={"groups": ["guests"]})
    browser, _ = await sign_in(house, provider)
    assert (await browser.get("/v1/web/session")).json()["role"] == "viewer"
    provider.told_later["sub"] = "another"
    assert "no group" in refused((await sign_in(house, provider))[1])


async def test_others_do_not_get_in(house: WebHouse) -> None:
    provider = with_provider(house)
    for groups in ([], ["others"], None, 7, {"ops": 1}, ["lost"], [["ops"]]):
        provider.claims = {"groups": groups}
        assert refused((await sign_in(house, provider))[1]), groups


def other_key(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode(header, claims, RSAKey.generate_key(2048), algorithms=["RS256"])


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = [json.dumps(one).encode() for one in ({**header, "alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts), ""])


def by_the_secret(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode({**header, "alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])


async def test_a_token_that_the_provider_did_not_sign_is_refused(house: WebHouse) -> None:
    provider = with_provider(house, claims={"groups": ["ops"]})
    for sign in (other_key, unsigned, by_the_secret, lambda *_: "no.token.", lambda *_: None):
        provider.sign = sign
        assert refused((await sign_in(house, provider))[1])


SPOILT: tuple[dict[str, Any], ...] = (
    {"iss": "https://evil.example"}, {"aud": "another"}, {"aud": ["another", "third"]}, {"nonce": "another"},
    {"nonce": None}, {"exp": 1}, {"iat": 4_000_000_000}, {"azp": "another", "aud": [CLIENT, "another"]},
    {"aud": None}, {"exp": None}, {"sub": None}, {"at_hash": "wrong"},
)  # fmt: skip


async def test_claims_that_are_not_for_this_sign_in_are_refused(house: WebHouse) -> None:
    provider = with_provider(house, claims={"groups": ["ops"]})
    for change in SPOILT:

        def spoil(header: dict[str, Any], claims: dict[str, Any], change: dict[str, Any] = change) -> None:
            for name, value in change.items():
                claims.pop(name, None)
                if value is not None:
                    claims[name] = value

        provider.spoil = spoil
        assert "does not hold" in refused((await sign_in(house, provider))[1]), change


async def test_new_keys_of_the_provider_are_read(house: WebHouse) -> None:
    provider = with_provider(house, claims={"groups": ["ops"]})
    await sign_in(house, provider)
    provider.key = RSAKey.generate_key(2048, {"kid": "k2", "use": "sig", "alg": "RS256"})
    browser, _ = await sign_in(house, provider)
    assert (await browser.get("/v1/web/session")).json()["role"] == "admin"
    assert provider.asked.count("configuration") == 1


async def test_a_sign_in_holds_in_one_browser_once_and_not_for_long(house: WebHouse) -> None:
    provider = with_provider(house, claims={"groups": ["ops"]})
    thief, browser = house.browser(), house.browser()
    begun = await browser.get("/v1/web/oidc/start")
    back = provider.authorize(follow(begun.headers["location"]))
    assert "another browser" in refused(await thief.get(back))
    assert "not begun here" in refused(await browser.get(back))  # it is over by the attempt
    begun = await browser.get("/v1/web/oidc/start")
    back = provider.authorize(follow(begun.headers["location"]))
    assert (await browser.get(back)).headers["location"] == "/ui/"
    assert "not begun here" in refused(await browser.get(back))
    begun = await browser.get("/v1/web/oidc/start")
    await asyncio.sleep(WAIT_S)
    assert "over" in refused(await browser.get(provider.authorize(follow(begun.headers["location"]))))


async def test_the_provider_can_refuse_and_only_it_can_answer(house: WebHouse) -> None:
    provider = with_provider(house, claims={"groups": ["ops"]})
    browser = house.browser()
    state = follow((await browser.get("/v1/web/oidc/start")).headers["location"])["state"]
    told = {"state": state, "error": "access_denied", "error_description": "<b>not you</b>"}
    assert "<b>not you</b>" in refused(await browser.get(CALLBACK, params=told))
    asked = follow((await browser.get("/v1/web/oidc/start")).headers["location"])
    assert "another identity provider" in refused(
        await browser.get(provider.authorize(asked, iss="https://evil.example"))
    )
    asked = follow((await browser.get("/v1/web/oidc/start")).headers["location"])
    assert "does not hold" in refused(await browser.get(CALLBACK, params={"state": asked["state"], "code": "guess"}))
    assert refused(await browser.get(CALLBACK))


async def test_a_provider_that_is_away_is_no_way_in(house: WebHouse) -> None:
    provider = with_provider(house, broken=True)
    assert "does not answer" in refused(await house.browser().get("/v1/web/oidc/start"))
    provider.broken = False
    provider.metadata = {"issuer": "https://evil.example"}
    assert "calls itself" in refused(await house.browser().get("/v1/web/oidc/start"))
    provider.metadata = {"token_endpoint": "http://evil.example/token"}
    assert "token_endpoint" in refused(await house.browser().get("/v1/web/oidc/start"))


async def test_without_a_provider_there_is_none(house: WebHouse) -> None:
    for path in ("/v1/web/oidc/start", CALLBACK):
        assert (await house.browser().get(path)).status_code == 404
    with_provider(house)
    evil = await house.browser().get("/v1/web/oidc/start", headers={"host": "evil.example"})
    assert evil.status_code == 404


@pytest.mark.parametrize(
    "path",
    ["", "/", "//evil.example", "https://evil.example", "/ui/\\evil", "/ui/\r\nx: y", "/ui/\u00fc", "ui/", "/ui"],
)
def test_a_sign_in_ends_at_the_page(path: str) -> None:
    assert is_own_place("/ui/jobs?state=running")
    assert not is_own_place(path)


ROLES = st.sampled_from(list(TokenRole))
GROUP = st.text(st.characters(categories=["L", "N"], include_characters="/-_:."), min_size=1)
RIGHT = st.builds(Right, GROUP, st.none() | st.sampled_from(["red", "blue"]), ROLES).map(
    lambda one: Right(one.group, None) if one.tenant is None else one
)


@given(st.lists(RIGHT), st.sets(GROUP), st.none() | st.sampled_from(["red", "blue"]))
def test_rights_are_read_as_they_are_written(rights: list[Right], groups: set[str], tenant: str | None) -> None:
    assert read_rights(write_rights(rights)) == tuple(rights)
    found = right_of(rights, groups, tenant)
    fitting = [one for one in rights if one.group in groups and tenant in (None, one.tenant)]
    assert found == (fitting[0] if fitting else None)


@pytest.mark.parametrize(
    "text", ["red", "=red", "ml=", "ml=Red", "ml=red:owner", "ml=red:", "ml=admin:viewer:x", 7, ["ml"]]
)
def test_rights_that_mean_nothing_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"must be|no group"):
        read_rights(text)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"issuer": "http://login.example.org"}, "issuer"),
        ({"issuer": "login"}, "issuer"),
        ({"client_id": ""}, "client_id"),
        ({"rights": ()}, "rights"),
        ({"scopes": "email"}, "scopes"),
    ],
)
def test_settings_that_cannot_work_are_told(change: dict[str, Any], where: str) -> None:
    given: dict[str, Any] = {"issuer": ISSUER, "client_id": CLIENT, "client_secret": "", "scopes": "openid"}
    given |= {"claim": "groups", "rights": RIGHTS}
    check_client(Client(**given))
    with pytest.raises(Invalid) as found:
        check_client(Client(**{**given, **change}))
    assert found.value.where == f"web.oidc.{where}"


@pytest.mark.parametrize("url", ["http://evil.example/", "ftp://x/", "https://", "", None, 7, "javascript:alert(1)"])
def test_endpoints_need_tls_or_this_machine(url: object) -> None:
    assert not is_endpoint(url)
    assert is_endpoint("https://login.example.org/a")
    assert is_endpoint("http://127.0.0.1:9000/a")
