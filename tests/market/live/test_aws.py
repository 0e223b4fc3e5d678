"""The provider `aws` with real boto3 against a real moto server, and what moto does not have with stand-ins."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.core import SystemClock, Unavailable
from shoal.market.history import Offer
from shoal.market.live.aws import WATCHDOG, AwsProvider
from shoal.market.live.provider import Listing, NotAvailable, Order
from shoal.market.live.settings import AwsSection

pytest.importorskip("boto3")
MOTO = Path(sys.executable).parent / "moto_server"
SPOT = Offer("aws", "us-east-1", "us-east-1a", "m5.large", "v100", 1, True)
DEMAND = Offer("aws", "us-east-1", "", "m5.large", "v100", 1, False)
LISTINGS = [Listing(SPOT, 1.0), Listing(DEMAND, 3.0)]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    if not MOTO.exists():
        pytest.skip("moto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([str(MOTO), "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def provider(moto: str, monkeypatch: pytest.MonkeyPatch) -> AwsProvider:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    section = AwsSection(region="us-east-1", image="ami-12c6146b", endpoint=moto)
    return AwsProvider(section, LISTINGS, uuid.uuid4().hex, SystemClock())


def order(token: str, offer: Offer = SPOT, hours: float = 1.0) -> Order:
    return Order(token, "team", token, offer, 1.0, time.time() + hours * 3600)


@pytest.mark.parametrize("offer", [SPOT, DEMAND])
async def test_a_token_is_launched_once_and_found_by_its_tag(provider: AwsProvider, offer: Offer) -> None:
    asked = order("j-1-1-0", offer)
    first = await provider.launch(asked)
    assert (await provider.launch(asked)).id == first.id
    (listed,) = await provider.instances()
    assert (listed.id, listed.token, listed.ready, listed.ended_at) == (first.id, "j-1-1-0", True, None)
    assert asked.until <= listed.until < asked.until + 1


async def test_more_time_is_a_tag_and_an_end_is_told_with_its_time(provider: AwsProvider) -> None:
    asked = order("j-1-1-0")
    found = await provider.launch(asked)
    await provider.extend(found.id, asked.until + 600)
    (listed,) = await provider.instances()
    assert asked.until + 600 <= listed.until < asked.until + 601
    before = time.time()
    await provider.terminate(found.id)
    await provider.terminate(found.id)
    (listed,) = await provider.instances()
    assert listed.ended_at is not None
    assert before - 2 <= listed.ended_at <= time.time() + 2


async def test_one_that_never_was_is_terminated_already(provider: AwsProvider) -> None:
    await provider.terminate("i-0123456789abcdef0")


async def test_instances_of_other_fleets_are_not_ours(provider: AwsProvider, moto: str) -> None:
    other = AwsProvider(AwsSection(region="us-east-1", image="ami-12c6146b", endpoint=moto), LISTINGS, "other",
                        SystemClock())  # fmt: skip
    await other.launch(order("j-1-1-0"))
    assert await provider.instances() == []
    mine = await provider.launch(order("j-1-1-0"))
    assert [one.id for one in await provider.instances()] == [mine.id]


async def test_spot_is_quoted_by_zone_and_on_demand_as_listed(provider: AwsProvider) -> None:
    spot, demand = await provider.quotes()
    assert spot.usd_per_hour != 1.0
    assert (demand.usd_per_hour, demand.available) == (3.0, True)


async def test_what_aws_was_asked_keeps_the_price_and_ends_the_instance_by_itself(provider: AwsProvider) -> None:
    asked: dict[str, Any] = {}

    def run_instances(**given: Any) -> Any:
        asked.update(given)
        return {"Instances": [{"InstanceId": "i-1", "State": {"Name": "pending"}, "LaunchTime": datetime.now(UTC)}]}

    provider._client.run_instances = run_instances
    await provider.launch(order("j-9-1-0"))
    assert asked["ClientToken"] == "j-9-1-0"
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "1.000000"
    assert asked["Placement"] == {"AvailabilityZone": "us-east-1a"}
    assert asked["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    assert "export SHOAL_NODE=j-9-1-0" in asked["UserData"]


@pytest.mark.parametrize(
    ("code", "kind"), [("InsufficientInstanceCapacity", NotAvailable), ("InternalError", Unavailable)]
)
async def test_only_some_errors_are_sure_that_nothing_was_launched(
    provider: AwsProvider, code: str, kind: type[Exception]
) -> None:
    from botocore.exceptions import ClientError

    def run_instances(**_given: Any) -> Any:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "RunInstances")

    provider._client.run_instances = run_instances
    with pytest.raises(kind):
        await provider.launch(order("j-9-1-0"))


async def test_a_marked_spot_request_is_a_notice(provider: AwsProvider) -> None:
    marked = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    class Pages:
        def paginate(self) -> Any:
            status = {"Code": "marked-for-termination", "UpdateTime": marked}
            fine = {"Code": "fulfilled", "UpdateTime": marked}
            return [{"SpotInstanceRequests": [
                {"InstanceId": "i-1", "Status": status}, {"InstanceId": "i-2", "Status": fine},
                {"Status": status},
            ]}]  # fmt: skip

    provider._client.get_paginator = lambda _name: Pages()
    (notice,) = await provider.notices()
    assert (notice.instance_id, notice.ends_at) == ("i-1", marked.timestamp() + 120)


@pytest.mark.parametrize(("told", "ends"), [("1", True), ("99999999999", False), ("", True), ("<html>", True)])
def test_the_watchdog_ends_a_machine_whose_time_is_over(tmp_path: Path, told: str, ends: bool) -> None:
    """With the tag as it is now; with the time of the launch where the metadata service says nothing."""
    for name, script in {
        "curl": f'case "$*" in *tags*) printf "%s" "{told}";; *) echo key;; esac',
        "shutdown": f'echo "$@" >{tmp_path}/down; kill -9 $PPID',
        "sleep": f"touch {tmp_path}/slept; kill -9 $PPID",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    text = WATCHDOG.format(node="n", until=str(int(time.time()) - 5)) + "wait\n"
    subprocess.run(["sh", "-c", text], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=20,
                   check=False, stderr=subprocess.DEVNULL)  # fmt: skip
    assert (tmp_path / "down").exists() == ends
    assert (tmp_path / "slept").exists() != ends
