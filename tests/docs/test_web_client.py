"""The page's typed client is made from the description of the server as it is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from shoal.contract.view import View
from tests.docs.test_reference import ROOT, tool

sys.path.append(str(ROOT / "docs" / "tools"))
schema = tool("docs/tools/schema")


def test_the_description_in_web_is_the_servers() -> None:
    assert schema.SCHEMA.read_text() == schema.text(), "run `python docs/tools/schema.py`, then `npm run build` in web/"


def _below(model: type[View]) -> Iterator[type[View]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)


def test_each_model_has_a_name_of_its_own() -> None:
    """Of two with one name the description would have whichever was loaded last."""
    schema.text()
    names = Counter(one.__name__ for one in _below(View) if one.__module__.startswith("shoal."))
    assert [name for name, count in names.items() if count > 1] == []
