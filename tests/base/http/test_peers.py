"""Who is let in, and whose place is taken, as plain decisions."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.http import Limits
from shoal.base.http.limits import Room
from shoal.base.http.peers import Peers, network_of

PLENTY = 1 << 20


@dataclass(eq=False)
class Client:
    name: str
    idle: bool = True
    since: float = 0.0


def filled(room: Room, **addresses: list[Client]) -> Peers[Client]:
    peers: Peers[Client] = Peers(room)
    for address, clients in addresses.items():
        for client in clients:
            peers.add(address, client)
    return peers


def many(count: int, *, idle: bool = True) -> list[Client]:
    return [Client(str(number), idle, float(number)) for number in range(count)]


def test_an_address_at_its_limit_loses_its_own_longest_idle() -> None:
    mine, others = many(3), many(5)
    mine[0].idle = False
    peers = filled(Room(100, 3, PLENTY), a=mine, b=others[:2])
    assert peers.full_for("a", 9)
    assert peers.victim("a") is mine[1]
    assert not peers.full_for("b", 9)


def test_at_the_limit_of_all_the_greediest_address_pays() -> None:
    greedy = many(5)
    peers = filled(Room(7, 6, PLENTY), a=many(2), b=greedy)
    assert peers.full_for("c", 9)
    assert peers.victim("c") is greedy[0]


def test_where_the_greediest_has_nothing_idle_the_next_pays() -> None:
    modest = many(2)
    peers = filled(Room(7, 6, PLENTY), a=modest, b=many(5, idle=False))
    assert peers.victim("c") is modest[0]
    modest[0].idle = modest[1].idle = False
    assert peers.victim("c") is None


def test_descriptors_are_kept_in_reserve() -> None:
    peers = filled(Room(100, 100, 50), a=many(1))
    assert not peers.full_for("b", 49)
    assert peers.full_for("b", 50)


def test_a_connection_that_was_used_meanwhile_is_spared() -> None:
    clients = many(3)
    peers = filled(Room(3, 3, PLENTY), a=clients)
    clients[0].since = 10.0
    assert peers.victim("a") is clients[1]
    clients[1].since = clients[2].since = 11.0
    assert peers.victim("a") is clients[0]  # all were used since, so the one that waits longest since it was looked at


def test_room_is_counted_again_when_one_leaves() -> None:
    clients = many(2)
    peers = filled(Room(2, 2, PLENTY), a=clients)
    assert peers.full_for("a", 9)
    peers.discard("a", clients[0])
    peers.discard("a", clients[0])
    assert len(peers) == 1
    assert not peers.full_for("a", 9)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 20)), max_size=30),
    st.sampled_from("abcd"),
)
def test_a_victim_is_idle_and_found_if_there_is_one(made: list[tuple[str, bool, int]], newcomer: str) -> None:
    peers: Peers[Client] = Peers(Room(30, 10, PLENTY))
    clients: dict[str, list[Client]] = {name: [] for name in "abcd"}
    for address, idle, since in made:
        client = Client(address, since=0.0)
        peers.add(address, client)
        client.idle, client.since = idle, float(since)
        clients[address].append(client)
    own_only = len(clients[newcomer]) >= 10
    candidates = [one for name, some in clients.items() if name == newcomer or not own_only for one in some if one.idle]
    victim = peers.victim(newcomer)
    assert (victim in candidates) if candidates else victim is None
    if victim is not None and not own_only:
        with_idle = [len(some) for some in clients.values() if any(one.idle for one in some)]
        assert len(clients[victim.name]) == max(with_idle)


def test_limits_follow_the_descriptors_of_the_process() -> None:
    assert Limits().room(1 << 20) == Room(4096, 2048, (1 << 20) - 128)
    assert Limits().room(1024) == Room(896, 448, 896)
    assert Limits().room(128) == Room(96, 48, 96)
    assert Limits(connections=10, per_address=50).room(1024) == Room(10, 10, 896)
    assert Limits(per_address=7).room(resource.RLIM_INFINITY).per_address == 7
    assert Limits(connections=1).room(1024).per_address == 1


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        ("", ""),
        (("odd", 1), "odd"),
    ],
)
def test_what_counts_as_one_address(address: object, network: str) -> None:
    assert network_of(address) == network
