"""Metrics as Prometheus takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily  # its package brings a web server

    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
