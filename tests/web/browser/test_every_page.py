"""Each page under a real load, in light and in dark: nothing that axe finds, and nothing wider than a telephone."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.web.site import Site
from tests.docs.test_reference import ROOT, tool

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

sys.path.append(str(ROOT / "docs" / "tools"))
screens = tool("docs/tools/screens")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def shown() -> Iterator[Any]:
    if not Site().built or not Path(screens.CHROMIUM).exists():
        pytest.skip("the web page is not built, or there is no chromium")
    with tempfile.TemporaryDirectory(prefix="shoal-pages-") as folder:
        Path(folder).chmod(0o755)
        with screens.loaded(Path(folder) / "home", Path(folder)) as found:
            yield found


def wrong(page: Any) -> list[str]:
    found = axe.Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing(shown: Any, chromium: Any, colours: str) -> None:
    page = screens.sign_in(chromium, shown, screens.WIDE, colours)
    found = {}
    for name in screens.places(shown):
        screens.show(page, shown, name)
        found[name] = wrong(page)
    page.goto(f"{shown.url}/ui/nodes")
    page.get_by_role("button", name="Drain").click()
    found["a question"] = wrong(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.get_by_role("option").first.wait_for()
    found["the palette"] = wrong(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    found["the sign-in"] = wrong(page)
    page.context.close()
    assert {name: all_of for name, all_of in found.items() if all_of} == {}


def test_no_page_is_wider_than_a_telephone(shown: Any, chromium: Any) -> None:
    page = screens.sign_in(chromium, shown, screens.NARROW, "light")
    wide = {}
    for name in screens.places(shown):
        screens.show(page, shown, name)
        if (width := page.evaluate("document.documentElement.scrollWidth")) > screens.NARROW[0]:
            wide[name] = width
    page.context.close()
    assert wide == {}


def test_another_policy_is_asked_on_the_page(shown: Any, chromium: Any) -> None:
    page = screens.sign_in(chromium, shown, screens.WIDE, "light")
    screens.show(page, shown, "schedule")
    page.get_by_role("button", name="Ask what fifo would do").click()
    page.get_by_role("dialog").get_by_text("Nothing is changed").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Ask what fifo would do").click()
    page.get_by_role("heading", name="What if fifo decided").wait_for()
    page.get_by_role("row").get_by_text(shown.running).first.wait_for()
    page.context.close()
