"""The words of a message: a mail's subject and text, a webhook's JSON, and Slack's. Pure, and the same for each try."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from shoal.notify.records import Delivery, News

_LONGEST_TITLE = 300
_LONGEST_SUBJECT = 180


def subject(news: Sequence[News]) -> str:
    """One line."""
    if not news:
        return "Shoal: no news"
    if len(news) == 1:
        return f"Shoal: {_one_line(news[0].title, _LONGEST_SUBJECT)}"
    counted = {one.topic.value: sum(other.topic is one.topic for other in news) for one in news}
    return f"Shoal: {len(news)} news: {', '.join(f'{count} {topic}' for topic, count in sorted(counted.items()))}"


def text(delivery: Delivery) -> str:
    """For people, one line for each."""
    lines = [_line(one) for one in delivery.news]
    return "\n".join([*lines, "", f"Delivery {delivery.id}. `shoal notify list` shows who is told what."]) + "\n"


def body(delivery: Delivery) -> bytes:
    """A webhook's: `type`, `timestamp` and `data`, as the Standard Webhooks have it."""
    news = [
        {
            "topic": one.topic.value, "tenant": one.tenant, "at": _iso(one.at), "title": one.title, "job": one.job_id,
            "facts": one.facts,
        }
        for one in delivery.news
    ]  # fmt: skip
    value = {
        "type": "shoal.news", "timestamp": _iso(delivery.created_at), "data": {"key": delivery.id, "news": news},
    }  # fmt: skip
    return orjson.dumps(value)


def slack(delivery: Delivery) -> bytes:
    """As Slack's incoming webhooks and those that copy them take it: Mattermost, Rocket.Chat, Discord at `/slack`."""
    blocks: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": _plain(_line(one))[:2900]}}
                                    for one in delivery.news[:45]]  # fmt: skip
    if len(delivery.news) > len(blocks):
        more = f"and {len(delivery.news) - len(blocks)} more"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": more}})
    return orjson.dumps({"text": _plain(subject(delivery.news)), "blocks": blocks})


def _plain(text: str) -> str:
    """Nothing in it is a link, a mention or a channel: names and messages come from jobs."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _line(one: News) -> str:
    return f"{_iso(one.at)}  {one.tenant}  {_one_line(one.title, _LONGEST_TITLE)}" + (
        f"  ({one.job_id})" if one.job_id else ""
    )


def _one_line(text: str, longest: int) -> str:
    flat = "".join(sign if sign.isprintable() else " " for sign in text)
    return flat if len(flat) <= longest else flat[: longest - 3] + "..."


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
