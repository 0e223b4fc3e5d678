"""Signing in and out: what a cookie is good for, for whom, and how long."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from shoal.web.sessions import CODE_LIFETIME_S, MOST_OF_ONE
from shoal.web.settings import WebSection
from shoal.web.tables import session as table
from tests.web.conftest import PAGE, WebHouse

pytestmark = pytest.mark.virtual_time


async def test_a_cookie_has_the_rights_of_the_token_and_no_more(house: WebHouse) -> None:
    await house.submit("red", name="mine", seconds=500)
    await house.submit("blue", name="theirs", seconds=500)
    seen = {}
    for who in ("admin", "red", "blue", "eye"):
        browser = await house.signed_in(who)
        seen[who] = {job["name"] for job in (await browser.get("/v1/jobs")).json()["jobs"]}
        more = {"name": f"of-{who}", "command": ["run"], "tenant": "red" if who == "admin" else None}
        made = await browser.post("/v1/jobs", json=more, headers=PAGE)
        assert made.status_code == (403 if who == "eye" else 201), made.text
        other = await browser.get("/v1/jobs?tenant=blue")
        assert other.status_code == (404 if who in ("red", "eye") else 200)
    assert seen["admin"] == {"mine", "theirs"}
    assert seen["red"] == {"mine", "of-admin"}
    assert seen["eye"] == {"mine", "of-admin", "of-red"}
    assert seen["blue"] == {"theirs"}


async def test_the_page_is_told_who_is_signed_in(house: WebHouse) -> None:
    nobody = (await house.browser().get("/v1/web/session")).json()
    assert nobody == {
        "signed_in": False, "tenant": None, "role": None, "name": "", "expires_at": None, "oidc": False,
    }  # fmt: skip
    for who, tenant, role in (("admin", None, "admin"), ("red", "red", "member"), ("eye", "red", "viewer")):
        told = (await (await house.signed_in(who)).get("/v1/web/session")).json()
        assert (told["signed_in"], told["tenant"], told["role"], told["name"]) == (True, tenant, role, f"of {who}")
        assert told["expires_at"] > house.world.clock.now()


async def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(house: WebHouse) -> None:
    answer = await house.browser().post("/v1/web/session", json={"token": house.tokens["red"]}, headers=PAGE)
    cookie = answer.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=604800"):
        assert part in cookie
    assert "Secure" not in cookie
    assert "Domain" not in cookie
    assert house.tokens["red"] not in answer.text + cookie
    await house.restart(WebSection(hosts="Shoal.example.org, other"))
    secure = {"origin": "https://shoal.example.org", "host": "shoal.example.org"}
    answer = await house.browser().post("/v1/web/session", json={"token": house.tokens["red"]}, headers=secure)
    assert answer.status_code == 200
    assert "; Secure" in answer.headers["set-cookie"]


async def test_a_sign_in_outlives_the_server_and_is_kept_as_a_hash_only(house: WebHouse) -> None:
    browser = await house.signed_in()
    secret = browser.cookies[house.web.cookie]
    await house.restart()
    again = house.browser(cookies={house.web.cookie: secret})
    assert (await again.get("/v1/web/session")).json()["tenant"] == "red"
    (row,) = house.plane.store.rows(select(table))
    assert secret not in str(row)
    assert house.tokens["red"] not in str(row)
    assert secret.encode() not in (house.world.folder / "shoal.db").read_bytes()


async def test_signing_out_ends_the_session_for_good(house: WebHouse) -> None:
    browser = await house.signed_in()
    secret = browser.cookies[house.web.cookie]
    gone = await browser.delete("/v1/web/session", headers=PAGE)
    assert gone.status_code == 204
    assert house.web.cookie not in browser.cookies
    kept = house.browser(cookies={house.web.cookie: secret})
    assert (await kept.get("/v1/jobs")).status_code == 401
    await house.restart()
    assert (await kept.get("/v1/jobs")).status_code == 401
    assert house.plane.store.rows(select(table)) == []


async def test_a_viewer_can_sign_out(house: WebHouse) -> None:
    browser = await house.signed_in("eye")
    assert (await browser.delete("/v1/web/session", headers=PAGE)).status_code == 204
    assert (await browser.get("/v1/jobs")).status_code == 401


async def test_a_revoked_token_ends_its_sessions_and_codes_at_once(house: WebHouse) -> None:
    browser, other = await house.signed_in(), await house.signed_in("blue")
    async with house.client("red") as client:
        code = (await client.post("/v1/web/link")).json()["code"]
    async with house.client("admin") as client:
        assert (await client.delete("/v1/tokens/tok-red")).status_code == 204
    assert (await browser.get("/v1/jobs")).status_code == 401
    assert (await other.get("/v1/jobs")).status_code == 200
    late = await house.browser().post("/v1/web/session", json={"code": code}, headers=PAGE)
    assert late.status_code == 422
    await house.restart()
    assert len(house.web.sessions) == 1


async def test_sessions_end_by_themselves(house: WebHouse) -> None:
    await house.restart(WebSection(lifetime="10m", idle="2m"))
    browser, idle = await house.signed_in(), await house.signed_in()
    for _ in range(5):
        await asyncio.sleep(110)
        assert (await browser.get("/v1/jobs")).status_code == 200
    assert (await idle.get("/v1/jobs")).status_code == 401
    await asyncio.sleep(60)  # over ten minutes since
    assert (await browser.get("/v1/jobs")).status_code == 401
    await asyncio.sleep(120)
    assert house.plane.store.rows(select(table)) == []


async def test_use_is_remembered_over_a_restart(house: WebHouse) -> None:
    await house.restart(WebSection(idle="5m"))
    browser = await house.signed_in()
    secret = browser.cookies[house.web.cookie]
    await asyncio.sleep(280)
    assert (await browser.get("/v1/jobs")).status_code == 200
    await asyncio.sleep(100)  # written by now
    await house.restart()
    await asyncio.sleep(150)
    again = house.browser(cookies={house.web.cookie: secret})
    assert (await again.get("/v1/jobs")).status_code == 200


async def test_one_token_has_so_many_sessions_at_most(house: WebHouse) -> None:
    first = await house.signed_in()
    for _ in range(MOST_OF_ONE):
        await asyncio.sleep(1)
        last = await house.signed_in()
    assert len(house.web.sessions) == MOST_OF_ONE
    assert (await first.get("/v1/jobs")).status_code == 401
    assert (await last.get("/v1/jobs")).status_code == 200


async def test_a_link_signs_in_once_and_not_for_long(house: WebHouse) -> None:
    async with house.client("eye") as client:
        links = [(await client.post("/v1/web/link")).json() for _ in range(2)]
    assert links[0]["path"] == f"/ui/#code={links[0]['code']}"
    browser = house.browser()
    answer = await browser.post("/v1/web/session", json={"code": links[0]["code"]}, headers=PAGE)
    assert answer.json()["role"] == "viewer"
    again = await house.browser().post("/v1/web/session", json={"code": links[0]["code"]}, headers=PAGE)
    assert again.status_code == 422
    assert "was used before" in again.text
    await asyncio.sleep(CODE_LIFETIME_S)
    late = await house.browser().post("/v1/web/session", json={"code": links[1]["code"]}, headers=PAGE)
    assert late.status_code == 422


async def test_a_link_needs_the_token_itself(house: WebHouse) -> None:
    browser = await house.signed_in()
    assert (await browser.post("/v1/web/link", headers=PAGE)).status_code == 403
    assert (await house.browser().post("/v1/web/link")).status_code == 403
    wrong = {"authorization": "Bearer shoal_red_wrong"}
    assert (await house.browser().post("/v1/web/link", headers=wrong)).status_code == 403


async def test_a_malformed_sign_in_is_refused(house: WebHouse) -> None:
    for body in ({}, {"token": "x", "code": "y"}, {"token": ""}, {"token": 1}, {"tokens": "x"}, []):
        answer = await house.browser().post("/v1/web/session", json=body, headers=PAGE)
        assert answer.status_code in (403, 422), body
        assert "set-cookie" not in answer.headers


async def test_an_unknown_token_is_refused(house: WebHouse) -> None:
    answer = await house.browser().post("/v1/web/session", json={"token": "shoal_red_guess"}, headers=PAGE)
    assert answer.status_code == 403
    assert "shoal_red_guess" not in answer.text


async def test_a_token_beats_a_cookie(house: WebHouse) -> None:
    browser = await house.signed_in("red")
    as_blue = {"authorization": f"Bearer {house.tokens['blue']}"}
    assert (await browser.post("/v1/jobs", json={"name": "b", "command": ["run"]}, headers=as_blue)).status_code == 201
    wrong = {"authorization": "Bearer shoal_red_wrong"}
    assert (await browser.get("/v1/jobs", headers=wrong)).status_code == 401


FOREIGN = (
    {},  # nothing of the page
    {"x-shoal-web": "1"},  # by a client without Origin
    {"origin": PAGE["origin"]},
    {"x-shoal-web": "1", "origin": "http://evil.example"},
    {"x-shoal-web": "1", "origin": "http://127.0.0.1:9999"},
    {"x-shoal-web": "1", "origin": "null"},
    {"x-shoal-web": "1", "sec-fetch-site": "cross-site"},
    {"x-shoal-web": "1", "sec-fetch-site": "same-site", "origin": PAGE["origin"]},
    {"x-shoal-web": "1", "sec-fetch-site": "none"},
    {**PAGE, "host": "evil.example"},
    {**PAGE, "host": "evil.example", "origin": "http://evil.example"},
    {**PAGE, "host": ""},
)


async def test_a_foreign_page_changes_nothing(house: WebHouse) -> None:
    browser = await house.signed_in()
    secret = browser.cookies[house.web.cookie]
    for headers in FOREIGN:
        sent = {**headers, "cookie": f"{house.web.cookie}={secret}"}
        answer = await house.browser().post("/v1/jobs", json={"name": "evil", "command": ["run"]}, headers=sent)
        assert answer.status_code == 403, headers
    assert (await browser.get("/v1/jobs?all=true")).json()["jobs"] == []


async def test_a_foreign_page_reads_nothing(house: WebHouse) -> None:
    browser = await house.signed_in()
    for headers in (
        {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}, {"origin": "http://127.0.0.1:9999"},
        {"host": "evil.example"}, {"host": "evil.example:7070"},
    ):  # fmt: skip
        sent = {**headers, "cookie": f"{house.web.cookie}={browser.cookies[house.web.cookie]}"}
        for path in ("/v1/jobs", "/v1/web/session", "/v1/web/stream"):
            assert (await house.browser().get(path, headers=sent)).status_code == 403, headers


async def test_a_foreign_page_signs_nobody_in(house: WebHouse) -> None:
    body = f'{{"token": "{house.tokens["red"]}"}}'
    for headers, kind in (
        ({"origin": "http://evil.example"}, "application/json"), ({"sec-fetch-site": "cross-site"}, "application/json"),
        (PAGE, "text/plain"), (PAGE, "application/x-www-form-urlencoded"),
    ):  # fmt: skip
        answer = await house.browser().post("/v1/web/session", content=body, headers={**headers, "content-type": kind})
        assert answer.status_code in (403, 422), headers
        assert "set-cookie" not in answer.headers
