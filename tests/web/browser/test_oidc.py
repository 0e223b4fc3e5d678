"""Sign-in at a real identity provider, as a reader does it: its page, its redirects, its cookies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.web.site import Site
from tests.web.browser.conftest import Running, Window, cookies_of, fetched

mock = pytest.importorskip("oidc_provider_mock", reason="the package oidc-provider-mock is not installed")

pytestmark = pytest.mark.slow


@pytest.fixture
def organisation(tmp_path: Path) -> Iterator[Running]:
    """A server whose people are those of a provider."""
    if not Site().built:
        pytest.skip("the web page is not built: `.ci/web` builds it, with Node.js")
    people = [
        mock.User(sub="ada", claims={"groups": ["ops"], "email": "ada@example.org"}),
        mock.User(sub="bob", claims={"groups": ["guests"], "email": "bob@example.org"}),
        mock.User(sub="eve", claims={"groups": ["others"], "email": "eve@example.org"}),
    ]
    secret = tmp_path / "secret"
    secret.write_text("a secret of the client\n")
    with mock.run_server_in_thread(user_claims=people) as provider:
        running = Running(
            tmp_path / "home",
            sets=[
                f"web.oidc.issuer=http://localhost:{provider.server_port}",
                "web.oidc.client_id=shoal",
                f"web.oidc.client_secret_file={secret}",
                "web.oidc.rights=ops=admin,guests=default:viewer",
            ],
        )
        running.up()
        yield running
        running.down()


def arrive(window: Window, server: Running, person: str) -> None:
    window.page.goto(f"{server.url}/ui/jobs?state=running")
    window.page.get_by_role("link", name="Sign in with your organisation").click()
    window.page.get_by_text(person).first.click()


def sign_out(window: Window) -> None:
    window.page.get_by_role("button", name="Sign out").click()
    window.page.get_by_role("link", name="Sign in with your organisation").wait_for()


def test_people_sign_in_at_their_organisation(organisation: Running, window: Window) -> None:
    page = window.page
    window.expected += ["ERR_NAME_NOT_RESOLVED", "404"]  # the provider's own page wants files of the Internet
    arrive(window, organisation, "ada")
    window.sees("ada@example.org")
    assert page.url.startswith(f"{organisation.url}/ui/jobs")
    assert fetched(window, "/v1/web/session")[1]["role"] == "admin"
    (cookie,) = cookies_of(window)
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    sign_out(window)
    arrive(window, organisation, "bob")
    window.sees("viewer of default")
    sign_out(window)
    arrive(window, organisation, "eve")
    window.sees("no group of eve@example.org has a right here")
    assert cookies_of(window) == []
