"""The page of subscriptions and of the last deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.contract.pages import Action, Column, Figure, Mood, Page, Table, Unit, Value
from shoal.notify.live.outbox import Counts
from shoal.notify.policy.words import subject
from shoal.notify.records import Delivery, Kind, State, Subscription
from shoal.notify.send.addresses import shown_url


def address_shown(one: Subscription) -> str:
    """Without what may be a token."""
    return one.target.address if one.target.kind is Kind.MAIL else shown_url(one.target.address)


def receiver(channel: str, subscriptions: Sequence[Subscription]) -> str:
    """Who a channel is, for people."""
    if ":" in channel:
        return channel.split(":", 2)[2]
    return next((one.name for one in subscriptions if one.id == channel), "a subscription that was removed")


def page_of(
    subscriptions: Sequence[Subscription], deliveries: Sequence[Delivery], counts: Counts
) -> Page:  # fmt: skip
    figures = [
        Figure(name="subscriptions", value=len(subscriptions)),
        Figure(name="held back", value=counts.held_back),
        Figure(name="waiting", value=counts.waiting),
        Figure(name="given up", value=counts.gave_up, mood=Mood.BAD if counts.gave_up else Mood.PLAIN),
    ]
    columns = [Column(name="delivery"), Column(name="to"), Column(name="news"), Column(name="state"),
               Column(name="tries"), Column(name="made", unit=Unit.TIME), Column(name="error")]  # fmt: skip
    rows: list[list[Value]] = [
        [one.id, receiver(one.channel, subscriptions), subject(one.news).removeprefix("Shoal: "), one.state.value,
         one.attempts, one.created_at, one.error or None]
        for one in deliveries
    ]  # fmt: skip
    named: list[list[Value]] = [
        [one.name, one.tenant, one.target.kind.value, address_shown(one), ", ".join(sorted(one.topics))]
        for one in subscriptions
    ]
    heads = [Column(name=name) for name in ("subscription", "tenant", "by", "address", "about")]
    actions = [
        Action(
            name=f"Send {one.id[:8]} again", command=["shoal", "notify", "retry", one.id], method="POST",
            path=f"/v1/notify/deliveries/{one.id}/retry",
        )
        for one in deliveries if one.state is State.GAVE_UP
    ]  # fmt: skip
    return Page(
        title="News", figures=figures, actions=actions,
        parts=[Table(title="Deliveries", columns=columns, rows=rows, empty="none yet"),
               Table(title="Subscriptions", columns=heads, rows=named, empty="none; `shoal notify add` makes one")],
    )  # fmt: skip
