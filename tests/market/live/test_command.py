"""The provider `command`: a site's program, run for each call without a shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.core import Invalid, ManualClock, ShoalError, Unavailable
from shoal.market.live.command import CommandProvider
from shoal.market.live.provider import NotAvailable, Order
from shoal.market.live.settings import CommandSection
from tests.market.live.kit import DEMAND, LISTINGS, SPOT

SITE = """
import json, os, sys
asked, file, what = json.load(sys.stdin), sys.argv[1], sys.argv[2]
known = json.load(open(file)) if os.path.exists(file) else {}
answer = {}
if what == "quotes":
    answer = {"quotes": [{"offer": one["offer"], "usd_per_hour": 0.7} for one in asked["offers"]] + [{"offer": "x", "usd_per_hour": 1}]}
elif what == "launch":
    if not asked["spot"]:
        sys.exit("none left" if asked["token"] == "broken" else 3)
    one = known.setdefault(asked["token"], {"id": "s-%d" % len(known), "token": asked["token"], "launched_at": 10, "until": asked["until"], "fleet": asked["fleet"]})
    answer = {"instance": one}
elif what in ("extend", "terminate"):
    for one in known.values():
        if one["id"] == asked["id"]:
            one.update({"until": asked["until"]} if what == "extend" else {"ended_at": 50, "usd": 0.25})
elif what == "list":
    answer = {"instances": list(known.values())}
elif what == "notices":
    answer = {"notices": [{"id": "s-0", "ends_at": 99}]}
json.dump(known, open(file, "w"))
print(json.dumps(answer))
"""  # noqa: E501


def provider(tmp_path: Path, script: str = SITE, timeout: str = "10s") -> CommandProvider:
    program = tmp_path / "site hooks.py"
    program.write_text(script)
    words = [sys.executable, str(program), str(tmp_path / "known.json")]
    section = CommandSection.model_validate({"words": words, "timeout": timeout})
    return CommandProvider(section, LISTINGS, "fleet", ManualClock(5.0))


async def test_a_site_rents_out_instances(tmp_path: Path) -> None:
    site = provider(tmp_path)
    assert [(one.offer, one.usd_per_hour) for one in await site.quotes()] == [(SPOT, 0.7), (DEMAND, 0.7)]
    order = Order("t; rm -rf $HOME", "team", "n", SPOT, 1.0, 100.0)
    found = await site.launch(order)
    assert (found.id, found.token, found.until, found.ready) == ("s-0", "t; rm -rf $HOME", 100.0, True)
    assert (await site.launch(order)).id == "s-0"
    await site.extend("s-0", 200.0)
    assert [one.until for one in await site.instances()] == [200.0]
    assert [(one.instance_id, one.ends_at) for one in await site.notices()] == [("s-0", 99.0)]
    await site.terminate("s-0")
    (ended,) = await site.instances()
    assert (ended.ended_at, ended.usd) == (50.0, 0.25)


async def test_exit_code_3_is_sure_that_nothing_was_launched_and_others_are_not(tmp_path: Path) -> None:
    site = provider(tmp_path)
    with pytest.raises(NotAvailable):
        await site.launch(Order("t", "team", "n", DEMAND, 1.0, 100.0))
    with pytest.raises(Unavailable, match="none left"):
        await site.launch(Order("broken", "team", "n", DEMAND, 1.0, 100.0))


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ("print('no')", Invalid, "no JSON object"),
        ("print('[]')", Invalid, "no JSON object"),
        ("print('{}')", Invalid, "has no `instances`"),
        ('print(\'{"instances": [{"id": 1}]}\')', Invalid, "is no instance"),
        ("import time; time.sleep(60)", Unavailable, "took longer"),
    ],
)
async def test_a_wrong_answer_is_told(tmp_path: Path, script: str, kind: type[ShoalError], said: str) -> None:
    with pytest.raises(kind, match=said):
        await provider(tmp_path, script, "500ms" if "sleep" in script else "10s").instances()


async def test_a_program_that_is_not_there_is_told() -> None:
    section = CommandSection.model_validate({"words": "/nowhere/hooks --site a"})
    assert section.words == ("/nowhere/hooks", "--site", "a")
    with pytest.raises(Unavailable, match="cannot be run"):
        await CommandProvider(section, LISTINGS, "fleet", ManualClock()).instances()
