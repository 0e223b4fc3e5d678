"""The page's typed client is made from the description of the server as it is."""

from __future__ import annotations

import sys

from tests.docs.test_reference import ROOT, tool

sys.path.append(str(ROOT / "docs" / "tools"))
schema = tool("docs/tools/schema")


def test_the_description_in_web_is_the_servers() -> None:
    assert schema.SCHEMA.read_text() == schema.text(), "run `python docs/tools/schema.py`, then `npm run build` in web/"
