"""Reports of measurements: one HTML page.

A `Report` is made of sections, one for each result (`latency`, `frontier`, `interference`, `mix_costs`,
`cold_starts`, `comparison`, `plan`). The page holds its figures as inline SVG, with a table under each, and needs no
network, no scripts and no fonts; it follows the reader's light or dark theme.
"""

from shoal.measure.report.bills import mix_costs, plan
from shoal.measure.report.document import Report, Section
from shoal.measure.report.front import frontier
from shoal.measure.report.page import html, write_html
from shoal.measure.report.sections import cold_starts, comparison, interference, latency

__all__ = [
    "Report", "Section", "cold_starts", "comparison", "frontier", "html", "interference", "latency", "mix_costs",
    "plan", "write_html",
]  # fmt: skip
