"""Prices of moving data, as data with their date and source. Dollars per gigabyte, first tier."""

from __future__ import annotations

from shoal.market.history import Offer

EGRESS_DATE = "2023-06"
EGRESS = {
    ("aws", "region"): (0.02, "aws.amazon.com/ec2/pricing/on-demand, data transfer to another region"),
    ("aws", "internet"): (0.09, "aws.amazon.com/ec2/pricing/on-demand, first 10 TB a month"),
    ("azure", "region"): (0.02, "azure.microsoft.com/pricing/details/bandwidth, between regions of a continent"),
    ("azure", "internet"): (0.087, "azure.microsoft.com/pricing/details/bandwidth, first 10 TB a month"),
    ("gcp", "region"): (0.02, "cloud.google.com/vpc/network-pricing, between regions of North America"),
    ("gcp", "internet"): (0.12, "cloud.google.com/vpc/network-pricing, first TB a month"),
}
"""By provider that is left and whereto; with their source. Inside a region storage is read for nothing."""


def egress_usd_per_gb(provider: str, region: str, to: Offer) -> float:
    """From storage in this region to an instance. An unknown provider asks what AWS does."""
    if to.provider == provider and to.region == region:
        return 0.0
    where = "region" if to.provider == provider else "internet"
    return EGRESS.get((provider, where), EGRESS["aws", where])[0]
