"""The built files: which path gets what, with which headers."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from shoal.web.site import Site
from tests.web.conftest import WebHouse

pytestmark = pytest.mark.virtual_time

SCRIPT = b"console.log('shoal');" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Shoal</title>")
    (folder / "assets" / "index-abc123.js").write_bytes(SCRIPT)
    (folder / "favicon.svg").write_text("<svg/>")
    (tmp_path / "secret").write_text("classified")
    (folder / "assets" / "link").symlink_to(tmp_path / "secret")
    return folder


async def test_files_come_packed_and_are_kept_by_their_names(house: WebHouse, built: Path) -> None:
    house.web.site = Site(built)
    browser = house.browser()
    script = await browser.get("/ui/assets/index-abc123.js")
    assert script.content == SCRIPT
    assert script.headers["content-encoding"] == "gzip"
    assert int(script.headers["content-length"]) == len(gzip.compress(SCRIPT, 9))
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    plain = await browser.get("/ui/assets/index-abc123.js", headers={"accept-encoding": "identity"})
    assert plain.content == SCRIPT
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != script.headers["etag"]
    assert plain.headers["vary"] == "Accept-Encoding"
    never = await browser.get("/ui/assets/index-abc123.js", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in never.headers
    same = await browser.get("/ui/assets/index-abc123.js", headers={"if-none-match": script.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    head = await browser.head("/ui/assets/index-abc123.js")
    assert head.status_code == 200
    assert head.content == b""


async def test_paths_of_the_page_get_its_index(house: WebHouse, built: Path) -> None:
    house.web.site = Site(built)
    browser = house.browser()
    for path in ("", "jobs", "jobs/j-1?tab=log", "index.html", "a/b/c.d", "..", "../secret", "%2e%2e/secret", "assets"):
        answer = await browser.get(f"/ui/{path}")
        assert answer.status_code in (200, 404)
        assert "classified" not in answer.text
        if answer.status_code == 200:
            assert "<title>Shoal" in answer.text
            assert answer.headers["cache-control"] == "no-cache"
    assert (await browser.get("/ui/favicon.svg")).headers["content-type"].startswith("image/svg+xml")
    for path in ("assets/none.js", "assets/link", "assets/../../secret", "assets/%2e%2e/%2e%2e/secret"):
        answer = await browser.get(f"/ui/{path}")
        assert "classified" not in answer.text
        assert "index-abc123" not in answer.text
    assert (await browser.get("/ui/assets/none.js")).status_code == 404
    assert (await browser.get("/ui/assets/link")).status_code == 404


async def test_browsers_are_led_to_the_page_and_programs_are_not(house: WebHouse) -> None:
    led = await house.browser().get("/", headers={"accept": "text/html,*/*"})
    assert (led.status_code, led.headers["location"]) == (307, "/ui/")
    told = await house.browser().get("/")
    assert told.status_code == 404
    assert told.json()["error"]["code"] == "not-found"
    assert (await house.browser().get("/ui")).headers["location"] == "/ui/"


async def test_without_a_build_the_page_says_so(house: WebHouse, tmp_path: Path) -> None:
    house.web.site = Site(tmp_path / "none")
    answer = await house.browser().get("/ui/jobs")
    assert answer.status_code == 503
    assert "The web page is not built" in answer.text
    assert answer.headers["content-type"].startswith("text/html")
    (told,) = [one for one in house.web.capabilities() if one.name == "web page"]
    assert not told.available
    assert ".ci/web" in told.detail


async def test_a_new_build_is_shown_without_a_restart(house: WebHouse, built: Path) -> None:
    house.web.site = Site(built)
    browser = house.browser()
    old = await browser.get("/ui/")
    (built / "assets" / "index-def456.js").write_bytes(b"new")
    (built / "index.html").write_text("<!doctype html><title>Shoal 2</title>")
    os.utime(built / "index.html", ns=(1, 1))
    new = await browser.get("/ui/", headers={"if-none-match": old.headers["etag"]})
    assert new.status_code == 200
    assert "Shoal 2" in new.text
    assert (await browser.get("/ui/assets/index-def456.js")).content == b"new"


async def test_no_frame_no_foreign_and_no_inline_code(house: WebHouse, built: Path) -> None:
    house.web.site = Site(built)
    for path in ("/ui/", "/ui/assets/index-abc123.js", "/ui/assets/none.js"):
        headers = (await house.browser().get(path)).headers
        policy = dict(one.split(" ", 1) for one in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


async def test_a_rebound_name_gets_no_page(house: WebHouse, built: Path) -> None:
    house.web.site = Site(built)
    for host in ("evil.example", "evil.example:7070", "localhost.evil.example", ""):
        for path in ("/ui/", "/ui/assets/index-abc123.js"):
            answer = await house.browser().get(path, headers={"host": host})
            assert answer.status_code == 421, host
            assert "web.hosts" in answer.text
