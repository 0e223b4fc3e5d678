"""EC2 as a provider, through boto3, of the extra `aws`.

Every instance has the tags of its fleet and token, given with its launch, and a launch carries the token as EC2's own
client token. It ends by itself at the time in its tag `shoal-until`: a script that it runs at its boot reads that tag
from its metadata service, and shutting down terminates it. Spot instances are bought with the agreed price as the most.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from shoal.base import extras
from shoal.core import Clock, Unavailable
from shoal.market.history import Offer
from shoal.market.live.provider import Instance, Listing, NotAvailable, Notice, Order, Quote
from shoal.market.live.settings import AwsSection

T = TypeVar("T")

_NONE_LAUNCHED = frozenset({
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "SpotMaxPriceTooLow", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded", "VcpuLimitExceeded", "Unsupported",
    "UnauthorizedOperation", "InsufficientFreeAddressesInSubnet", "InvalidAMIID.NotFound",
})  # fmt: skip
"""Errors of RunInstances that are sure that nothing was launched."""
_NOTICE_S = 120.0
_PRICES_S = 60.0
_EARLY_S = 30
"""How long before its time is over an instance begins to shut itself down: that takes a while."""
_LIVE = ("pending", "running", "stopping", "stopped")
_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")

WATCHDOG = """#!/bin/sh
# Ends this machine when the time that was paid for it is over, with or without a server.
export SHOAL_NODE={node}
until={until}
metadata=http://169.254.169.254/latest
(
  while :; do
    key=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' $metadata/api/token)
    told=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $key" $metadata/meta-data/tags/instance/shoal-until)
    case $told in ''|*[!0-9]*) ;; *) until=$told ;; esac
    [ "$(date +%s)" -ge "$until" ] && shutdown -P now
    sleep 10
  done
) >/dev/null 2>&1 &
"""


class AwsProvider:
    """See `shoal.market.live.provider.Provider`. Calls of boto3 run in threads."""

    name = "aws"

    def __init__(
        self, settings: AwsSection, listings: Sequence[Listing], fleet: str, clock: Clock, client: Any = None
    ) -> None:
        self._settings, self._listings, self._fleet, self._clock = settings, listings, fleet, clock
        self._script = "" if settings.user_data is None else settings.user_data.read_text(encoding="utf-8")
        self._client = client or _client(settings)
        self._prices: Mapping[tuple[str, str], float] = {}
        self._priced_at = -_PRICES_S
        self._gone: dict[str, float] = {}

    def now(self) -> float:
        return self._clock.now()

    async def open(self) -> None:
        """boto3 connects at its first call."""

    async def close(self) -> None:
        self._client.close()

    async def quotes(self) -> Sequence[Quote]:
        if self._clock.monotonic() - self._priced_at >= _PRICES_S:
            self._prices = await self._call(self._spot_prices)
            self._priced_at = self._clock.monotonic()
        return [self._quote(one) for one in self._listings]

    async def launch(self, order: Order) -> Instance:
        known = await self._call(partial(self._list, [{"Name": "tag:shoal-token", "Values": [order.token]}]))
        if known:
            return min(known, key=lambda one: (one.ended_at is not None, one.launched_at, one.id))
        return await self._call(partial(self._run, order))

    async def extend(self, instance_id: str, until: float) -> None:
        tags = [{"Key": "shoal-until", "Value": _until(until)}]
        await self._call(partial(self._client.create_tags, Resources=[instance_id], Tags=tags))

    async def terminate(self, instance_id: str) -> None:
        await self._call(partial(self._terminate, instance_id))

    async def instances(self) -> Sequence[Instance]:
        return await self._call(partial(self._list, []))

    async def notices(self) -> Sequence[Notice]:
        if not any(one.offer.spot for one in self._listings):
            return []
        return await self._call(self._marked)

    # --- in a thread ---

    async def _call(self, call: Callable[[], T]) -> T:
        import botocore.exceptions as errors

        try:
            return await asyncio.to_thread(call)
        except errors.ClientError as error:
            told = error.response.get("Error", {})
            if told.get("Code") in _NONE_LAUNCHED:
                raise NotAvailable(f"{told['Code']}: {told.get('Message', '')}") from error
            raise Unavailable(f"EC2: {error}") from error
        except errors.BotoCoreError as error:
            raise Unavailable(f"EC2: {error}") from error

    def _run(self, order: Order) -> Instance:
        asked, offer = self._settings, order.offer
        tags = [
            {"Key": key, "Value": value}
            for key, value in {
                "Name": order.node, "shoal-fleet": self._fleet, "shoal-token": order.token,
                "shoal-tenant": order.tenant, "shoal-offer": offer.name, "shoal-until": _until(order.until),
            }.items()
        ]  # fmt: skip
        more: dict[str, Any] = {}
        if offer.zone:
            more["Placement"] = {"AvailabilityZone": offer.zone}
        if subnet := asked.subnets.get(offer.zone or offer.region):
            more["SubnetId"] = subnet
        if asked.security_groups:
            more["SecurityGroupIds"] = list(asked.security_groups)
        if asked.key_name:
            more["KeyName"] = asked.key_name
        if asked.profile:
            more["IamInstanceProfile"] = {"Name": asked.profile}
        if offer.spot:
            options = {"MaxPrice": f"{order.usd_per_hour:.6f}", "SpotInstanceType": "one-time",
                       "InstanceInterruptionBehavior": "terminate"}  # fmt: skip
            more["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        answered = self._client.run_instances(
            ImageId=asked.image, InstanceType=offer.instance, MinCount=1, MaxCount=1, ClientToken=order.token,
            UserData=WATCHDOG.format(node=order.node, until=_until(order.until)) + self._script,
            InstanceInitiatedShutdownBehavior="terminate",
            MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}], **more,
        )  # fmt: skip
        return self._instance({"Tags": tags, **answered["Instances"][0]})

    def _list(self, filters: list[dict[str, Any]]) -> list[Instance]:
        ours = [{"Name": "tag:shoal-fleet", "Values": [self._fleet]}, *filters]
        pages = self._client.get_paginator("describe_instances").paginate(Filters=ours)
        return [self._instance(one) for page in pages for group in page["Reservations"] for one in group["Instances"]]

    def _instance(self, told: Mapping[str, Any]) -> Instance:
        tags = {tag["Key"]: tag["Value"] for tag in told.get("Tags", ())}
        state = told["State"]["Name"]
        ended = None
        if state not in _LIVE:
            found = _AT.search(told.get("StateTransitionReason") or "")
            seen = self._gone.setdefault(told["InstanceId"], self.now())
            ended = seen if found is None else datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()
        return Instance(
            told["InstanceId"], tags.get("shoal-token", ""), told["LaunchTime"].timestamp(),
            float(tags.get("shoal-until", 0)) + _EARLY_S, state == "running", ended,
        )  # fmt: skip

    def _terminate(self, instance_id: str) -> None:
        import botocore.exceptions as errors

        try:
            self._client.terminate_instances(InstanceIds=[instance_id])
        except errors.ClientError as error:
            if error.response.get("Error", {}).get("Code") != "InvalidInstanceID.NotFound":
                raise

    def _marked(self) -> list[Notice]:
        """Spot requests say that their instance was marked two minutes before it is taken."""
        pages = self._client.get_paginator("describe_spot_instance_requests").paginate()
        return [
            Notice(one["InstanceId"], one["Status"]["UpdateTime"].timestamp() + _NOTICE_S)
            for page in pages for one in page["SpotInstanceRequests"]
            if one.get("Status", {}).get("Code") == "marked-for-termination" and one.get("InstanceId")
        ]  # fmt: skip

    def _spot_prices(self) -> Mapping[tuple[str, str], float]:
        """The newest, by instance type and zone."""
        kinds = sorted({one.offer.instance for one in self._listings if one.offer.spot})
        if not kinds:
            return {}
        newest: dict[tuple[str, str], tuple[float, float]] = {}
        pages = self._client.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=kinds, ProductDescriptions=["Linux/UNIX"], StartTime=datetime.fromtimestamp(self.now(), UTC)
        )
        for page in pages:
            for one in page["SpotPriceHistory"]:
                key, at = (one["InstanceType"], one["AvailabilityZone"]), one["Timestamp"].timestamp()
                if at >= newest.get(key, (-1.0, 0.0))[0]:
                    newest[key] = (at, float(one["SpotPrice"]))
        return {key: usd for key, (_, usd) in newest.items()}

    def _quote(self, listing: Listing) -> Quote:
        offer: Offer = listing.offer
        if not offer.spot:
            return Quote(offer, listing.usd_per_hour, True)
        price = self._prices.get((offer.instance, offer.zone))
        if price is None:
            return Quote(offer, listing.usd_per_hour, False)
        return Quote(offer, price, price <= listing.usd_per_hour)


def _until(at: float) -> str:
    return str(math.ceil(at) - _EARLY_S)


def _client(settings: AwsSection) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise Unavailable("the provider aws needs boto3", hint=extras.install("aws")) from error
    # Launches are repeated by the market, which looks first whether there is one.
    limits = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 2, "mode": "standard"})
    return boto3.client("ec2", region_name=settings.region, endpoint_url=settings.endpoint or None, config=limits)
