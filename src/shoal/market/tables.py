"""Prices of moving and keeping data, as data with their date and source. Dollars, first tier, regions of the USA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shoal.market.history import Offer

What = Literal["region", "internet", "storage"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """Per gigabyte that leaves for another region or the internet, or that is kept for a month. `checked` says what the
    figure was compared with; where it is empty, the figure could not be verified."""

    provider: str
    what: What
    usd: float
    date: str
    source: str
    checked: str = ""


TARIFFS = (
    Tariff("aws", "region", 0.02, "2023-06", "aws.amazon.com/ec2/pricing/on-demand: data transfer to another region",
           "an article of repost.aws: 0.02 from us-east-1 to us-west-2"),
    Tariff("aws", "internet", 0.09, "2023-06", "aws.amazon.com/ec2/pricing/on-demand: first 10 TB a month"),
    Tariff("aws", "storage", 0.023, "2023-06", "aws.amazon.com/s3/pricing: S3 Standard, first 50 TB a month"),
    Tariff("azure", "region", 0.02, "2023-06", "azure.microsoft.com/pricing/details/bandwidth: within a continent"),
    Tariff("azure", "internet", 0.087, "2023-06", "azure.microsoft.com/pricing/details/bandwidth: first 10 TB a month"),
    Tariff("azure", "storage", 0.018, "2023-06", "azure.microsoft.com/pricing/details/storage/blobs: hot, LRS"),
    Tariff("gcp", "region", 0.02, "2023-06", "cloud.google.com/vpc/network-pricing: within North America"),
    Tariff("gcp", "internet", 0.12, "2023-06", "cloud.google.com/vpc/network-pricing: first TB a month"),
    Tariff("gcp", "storage", 0.02, "2023-06", "cloud.google.com/storage/pricing: Standard, one region"),
)  # fmt: skip
"""Inside a region storage is read for nothing."""

MONTH_S = 730 * 3600.0


def tariff(provider: str, what: What) -> Tariff:
    """An unknown provider asks what AWS does."""
    found = {(one.provider, one.what): one for one in TARIFFS}
    return found.get((provider, what), found["aws", what])


def egress_usd_per_gb(provider: str, region: str, to: Offer) -> float:
    """From storage in this region to an instance."""
    if to.provider == provider and to.region == region:
        return 0.0
    return tariff(provider, "region" if to.provider == provider else "internet").usd


def storage_usd(provider: str, gigabytes: float, seconds: float) -> float:
    """Of keeping data and state for that long."""
    return tariff(provider, "storage").usd * gigabytes * seconds / MONTH_S
