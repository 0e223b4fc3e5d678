"""Which hosts and origins are the server's own: pure rules, tried on what attackers send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Forbidden
from shoal.web.requests import MARK, SAFE, host_name, is_own_host, is_own_page, is_secure, refuse

NAMES = frozenset({"shoal.example.org"})


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:7070", "localhost"), ("LOCALHOST", "localhost"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]:7070", "::1"),
     ("[::1]", "::1"), ("shoal.example.org.", "shoal.example.org"), ("", ""), (":7070", ""), ("a:b", ""),
     ("a:1:2", ""), ("[evil]", ""), ("[::1]x", ""), ("[::1", ""), ("user@localhost", "user@localhost")],
)  # fmt: skip
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7070", "[::1]:7070", "10.1.2.3", "shoal.example.org:443"])
def test_own_hosts(host: str) -> None:
    assert is_own_host(host, NAMES)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "evil.example:7070", "127.0.0.1.evil.example",
     "localhost@evil.example", "evil.shoal.example.org", "127.1", "0x7f000001", "2130706433",
     "[::1].evil.example", "localhost\u0000"],
)  # fmt: skip
def test_foreign_hosts(host: str) -> None:
    assert not is_own_host(host, NAMES)


@given(st.text(), st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "get"]), st.data())
def test_what_changes_something_comes_from_the_page_itself(host: str, method: str, data: st.DataObject) -> None:
    """Whatever is sent, an accepted change has the page's header and says that it comes from this very host."""
    own = st.sampled_from([host, f"http://{host}", f"https://{host}", "1", "same-origin", "same-site", "none", "null"])
    headers = data.draw(st.dictionaries(st.sampled_from([MARK, "origin", "sec-fetch-site"]), own | st.text()))
    headers["host"] = host
    try:
        refuse(method, headers, NAMES)
    except Forbidden:
        return
    assert is_own_host(host, NAMES)
    if method not in SAFE:
        assert headers[MARK] == "1"
        assert headers.get("sec-fetch-site", "same-origin") == "same-origin"
        assert "sec-fetch-site" in headers or "://" in headers["origin"]


@given(st.text(), st.text())
def test_no_header_breaks_the_rules(host: str, origin: str) -> None:
    is_own_page("POST", {"host": host, "origin": origin}, NAMES)
    is_secure({"origin": origin})


def test_a_proxy_may_change_the_host_but_not_the_origin() -> None:
    headers = {"host": "127.0.0.1:7070", "origin": "https://shoal.example.org"}
    assert is_own_page("POST", headers, NAMES)
    assert not is_own_page("POST", headers, frozenset())
    assert is_secure(headers)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("[::1]80", ""),
        ("[::1]:", ""),
        ("[::1]:x", ""),
        ("[x]", ""),
        ("A.b:1", "a.b"),
    ],
)
def test_the_name_of_a_host(host: str, name: str) -> None:
    assert host_name(host) == name


def test_the_own_host_is_known_in_any_case_and_each_refusal_says_what_was_wrong() -> None:
    own = {"host": "LocalHost:7070", "origin": "http://localhost:7070", MARK: "1"}
    refuse("POST", own, NAMES)
    for change, what, where, hint in (
        ({"host": "evil.example"}, "a sign-in does not hold under this host name", "Host", "web.hosts"),
        (
            {"origin": "http://evil.example"},
            "a sign-in does not hold for requests of another page",
            "Origin",
            "web.hosts",
        ),
        (
            {MARK: "0"},
            "a request with the page's cookie has to carry the page's header",
            "X-Shoal-Web",
            "X-Shoal-Web: 1",
        ),
    ):
        with pytest.raises(Forbidden) as refused:
            refuse("POST", {**own, **change}, NAMES)
        assert (refused.value.what, refused.value.where) == (what, where)
        assert hint in (refused.value.hint or "")
