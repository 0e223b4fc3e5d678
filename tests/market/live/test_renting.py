"""What is rented agrees with what is written down, whenever the server dies; and no cap is passed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.contract.records import NewEvent
from shoal.core import Conflict, Unavailable
from shoal.market.live.provider import Instance, NotAvailable, Order
from shoal.market.live.reconcile import Extend, Launch, Terminate, Write, reconcile
from shoal.market.live.records import Rental, RentalState, charge, wanted
from tests.market.live.kit import DEMAND, HOUR, SPOT, START, Killed, World, history

(RENTAL,) = wanted("j-1", "team", 1, SPOT.name, 1.5, 1, START, START + HOUR)
INSTANCE = Instance("i-1", RENTAL.id, START + 1, START + HOUR)


async def test_an_instance_is_launched_once_renewed_and_ended(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 10.0})
    assert await world.want("j-1")
    assert await world.running() == []  # the record comes first
    await world.later(0)
    assert await world.running() == ["j-1-1-0"]
    assert not world.renter.rentals["j-1-1-0"].ready
    await world.later(60)
    assert world.renter.rentals["j-1-1-0"].ready
    assert await world.renter.renew(world.renter.of_job("j-1"), START + 3 * HOUR)
    await world.renter.act()
    await world.later(2 * HOUR)
    assert await world.running() == ["j-1-1-0"]
    await world.renter.release(world.renter.of_job("j-1"), "over")
    await world.renter.act()
    await world.later(10)
    assert await world.running() == []
    ended = world.rental("j-1-1-0")
    assert (ended.state, ended.cause, ended.exact) == (RentalState.ENDED, "over", True)
    assert ended.micro_usd / 1e6 == pytest.approx(world.bill(), abs=2e-6)
    assert world.bill() == pytest.approx((2 * HOUR + 60) / 3600 * 1.0)


async def test_a_dead_server_costs_no_more_than_was_set_aside(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 2.0})
    assert await world.want("j-1")
    await world.later(0)
    world.clock.advance(24 * HOUR)
    assert await world.running() == []
    assert world.bill() == pytest.approx(1.0)
    world.restart()
    await world.renter.look()
    assert not world.renter.rentals
    assert world.committed() <= 2.0


async def test_what_could_pass_the_cap_is_not_launched(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 3.1})
    assert await world.want("j-1")
    assert await world.want("j-2")
    assert not await world.want("j-3")
    assert not await world.want("j-4", DEMAND, hours=0.1)
    await world.later(0)
    assert await world.running() == ["j-1-1-0", "j-2-1-0"]
    assert not await world.renter.renew(world.renter.of_job("j-1"), START + 2 * HOUR)
    assert world.rental("j-1-1-0").until == START + HOUR
    await world.renter.release(world.renter.of_job("j-2"), "over")  # its money comes back
    await world.later(1)
    await world.later(1)
    assert await world.renter.renew(world.renter.of_job("j-1"), START + 1.9 * HOUR)


async def test_a_tenant_without_a_cap_rents_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, {"other": 100.0})
    assert not await world.want("j-1")
    assert world.ledger.open_rentals() == []


async def test_a_gang_is_paid_for_whole_or_not_at_all(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 4.0})
    assert not await world.want("j-1", count=3)
    assert world.ledger.open_rentals() == []
    assert await world.want("j-1", count=2)
    await world.later(0)
    assert await world.running() == ["j-1-1-0", "j-1-1-1"]


async def test_an_offer_that_is_not_there_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 10.0}, history([0] * 10))
    assert await world.want("j-1")
    await world.later(0)
    assert SPOT.name in world.renter.refused
    assert (world.rental("j-1-1-0").state, world.committed()) == (RentalState.ENDED, 0.0)


async def test_an_instance_that_the_market_takes_is_told_before_and_closed_after(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 10.0}, history(prices={0.0: 1.0, 600.0: 2.0}))
    assert await world.want("j-1")
    await world.later(0)
    await world.later(599)
    assert not world.renter.notices
    await world.later(2)
    assert world.renter.notices["j-1-1-0"].ends_at == START + 720
    assert await world.running() == ["j-1-1-0"]
    await world.later(120)
    assert await world.running() == []
    ended = world.rental("j-1-1-0")
    assert ended.cause == "the provider ended it"
    # Ten minutes at its price, and the notice at no more than was agreed.
    assert ended.micro_usd == pytest.approx((600 * 1.0 + 120 * 1.5) / 3600 * 1e6, abs=2)


async def test_of_too_many_the_last_rented_goes_first(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 10.0}, history([2, 2, 1, 1, 1, 1]))
    assert await world.want("j-1")
    await world.later(0)
    assert await world.want("j-2")
    assert await world.want("j-3")
    await world.later(1)
    assert await world.running() == ["j-1-1-0", "j-2-1-0"]
    await world.later(125)
    assert list(world.renter.notices) == ["j-2-1-0"]


async def test_what_has_our_tag_and_no_record_is_ended(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 10.0})
    await world.truth.launch(Order("nobody", "team", "nobody", SPOT, 1.5, START + HOUR))
    await world.renter.look()
    assert await world.running() == []
    kinds = [event.kind for event in world.store.events()]
    assert "market.orphan" in kinds


@pytest.mark.few(count=7)
@pytest.mark.parametrize("killed_at", sorted(range(1, 40), key=lambda at: (at - 1) % 6))
async def test_whenever_the_server_dies_nothing_is_forgotten_or_doubled(tmp_path: Path, killed_at: int) -> None:
    world = World(tmp_path, {"team": 6.0}, killed_at=killed_at)
    most = 0
    for step in range(60):
        try:
            if step == 0:
                await world.want("j-1", count=2)
            if step == 3:
                await world.renter.renew([one for one in world.renter.of_job("j-1") if one.kept], START + 1.5 * HOUR)
            if step >= 6:
                await world.renter.release(world.renter.of_job("j-1"), "over")
            await world.later(30)
        except Killed:
            world.restart()
        running = await world.running()
        assert len(running) == len(set(running))
        most = max(most, len(running))
        records = {one.id for one in world.ledger.open_rentals()}
        assert set(running) <= records or step > 6
        assert world.bill() <= world.committed() + 1e-5 <= 6.0 + 1e-5
    assert most <= 2
    assert await world.running() == []
    assert world.ledger.open_rentals() == [] or all(one.launched_at is None for one in world.ledger.open_rentals())
    await world.later(2 * HOUR)
    assert world.ledger.open_rentals() == []
    assert world.committed() == pytest.approx(world.bill(), abs=1e-5)


async def test_a_write_whose_answer_was_lost_is_found_again(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 6.0})
    assert await world.want("j-1")
    write = world.ledger.write

    async def lost(changed: Rental, *events: NewEvent) -> Rental:
        await write(changed, *events)
        raise Unavailable("the database went away")

    world.ledger.write = lost  # type: ignore[method-assign]
    await world.later(0)
    assert world.renter.rentals["j-1-1-0"].state is RentalState.WANTED
    world.ledger.write = write  # type: ignore[method-assign]
    await world.later(60)
    assert (world.renter.rentals["j-1-1-0"].state, await world.running()) == (RentalState.RUNNING, ["j-1-1-0"])
    await world.renter.release(world.renter.of_job("j-1"), "over")
    await world.later(1)
    assert await world.running() == []


async def test_an_older_record_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    world = World(tmp_path, {"team": 6.0})
    assert await world.want("j-1")
    old = world.renter.rentals["j-1-1-0"]
    await world.ledger.write(old.ending("one"))
    with pytest.raises(Conflict):
        await world.ledger.write(old.ending("another"))
    assert world.rental("j-1-1-0").cause == "one"


# --- the pure part ---


def test_a_second_instance_of_a_token_is_ended_and_the_known_one_stays() -> None:
    known = replace(RENTAL, state=RentalState.RUNNING, instance_id="i-1", launched_at=START + 1, ready=True)
    older = replace(INSTANCE, id="i-0", launched_at=START)
    actions = reconcile({known.id: known.extended(known.until)}, [older, INSTANCE], START + 10)
    assert [one for one in actions if isinstance(one, Terminate)] == [
        Terminate(older, f"another instance has the token {RENTAL.id}", orphan=True)
    ]
    assert len(actions) == 1


def test_a_wanted_one_is_adopted_if_it_is_there_and_launched_if_not() -> None:
    assert reconcile({RENTAL.id: RENTAL}, [], START + 10) == [Launch(RENTAL)]
    (action,) = reconcile({RENTAL.id: RENTAL}, [INSTANCE], START + 10)
    assert isinstance(action, Write)
    assert (action.rental.state, action.rental.instance_id) == (RentalState.RUNNING, "i-1")
    assert action.rental.micro_usd <= RENTAL.micro_usd


def test_what_is_set_aside_holds_for_a_provider_whose_clock_is_a_little_behind() -> None:
    early = replace(INSTANCE, launched_at=START - 5)
    assert RENTAL.launched(early).micro_usd == RENTAL.micro_usd
    assert RENTAL.extended(START + 2 * HOUR).launched(early).micro_usd <= RENTAL.extended(START + 2 * HOUR).micro_usd


def test_one_that_was_never_seen_holds_its_money_until_its_end() -> None:
    ending = RENTAL.ending("over")
    assert reconcile({RENTAL.id: ending}, [], START + HOUR - 1) == []
    (action,) = reconcile({RENTAL.id: ending}, [], START + HOUR)
    assert isinstance(action, Write)
    assert (action.rental.state, action.rental.micro_usd) == (RentalState.ENDED, 0)
    assert reconcile({RENTAL.id: ending}, [INSTANCE], START + 10) == [Terminate(INSTANCE, "over")]


def test_a_new_instance_may_be_unseen_for_a_while() -> None:
    known = RENTAL.launched(INSTANCE)
    assert reconcile({known.id: known}, [], START + 100) == []
    (action,) = reconcile({known.id: known}, [], START + 121)
    assert isinstance(action, Write)
    assert action.rental.state is RentalState.ENDED
    assert action.rental.micro_usd == charge(1_500_000, 120.0)


def test_a_renewal_that_did_not_reach_the_provider_is_repeated() -> None:
    known = RENTAL.launched(INSTANCE).extended(START + 2 * HOUR)
    assert reconcile({known.id: known}, [INSTANCE], START + 10) == [Extend(INSTANCE, START + 2 * HOUR)]


def test_a_bill_that_comes_late_is_taken_over() -> None:
    ended = RENTAL.launched(INSTANCE).ended("over", replace(INSTANCE, ended_at=START + 601), START + 700)
    assert (ended.micro_usd, ended.exact) == (charge(1_500_000, 600), False)
    told = replace(INSTANCE, ended_at=START + 601, usd=0.125)
    (action,) = reconcile({ended.id: ended}, [told], START + 800)
    assert isinstance(action, Write)
    assert (action.rental.micro_usd, action.rental.exact) == (125_000, True)
    assert reconcile({ended.id: action.rental}, [told], START + 900) == []


def test_an_instance_that_outlives_its_record_is_ended() -> None:
    ended = RENTAL.ended("never launched", None, START + 5)
    assert reconcile({ended.id: ended}, [INSTANCE], START + 10) == [
        Terminate(INSTANCE, "its record has ended", orphan=True)
    ]


def test_charges_round_up_and_have_a_least() -> None:
    assert charge(3_600_000, 10) == 60_000
    assert charge(3_600_000, 60.5) == 61_000
    assert charge(1, 60) == 1


async def test_a_token_is_one_instance_however_often_it_is_ordered(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    order = Order("t", "team", "t", SPOT, 1.5, START + HOUR)
    first = await world.truth.launch(order)
    assert (await world.truth.launch(order)).id == first.id
    world.clock.advance(2 * HOUR)
    assert (await world.truth.launch(order)).ended_at == START + HOUR
    with pytest.raises(NotAvailable, match="costs more than"):
        await world.truth.launch(Order("u", "team", "u", SPOT, 0.5, START + 3 * HOUR))


def test_a_rental_shows_itself() -> None:
    shown = RENTAL.as_json()
    assert isinstance(RENTAL, Rental)
    assert (shown["rental"], shown["usd"], shown["state"]) == ("j-1-1-0", RENTAL.micro_usd / 1e6, "WANTED")
