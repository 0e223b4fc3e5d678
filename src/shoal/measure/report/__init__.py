"""The sections of a report, one for each result: `latency`, `frontier`, `interference`, `mix_costs`, `cold_starts`,
`comparison`, `plan`. `shoal.base.report` makes the page of them.
"""

from shoal.measure.report.bills import mix_costs, plan
from shoal.measure.report.pareto import frontier
from shoal.measure.report.sections import cold_starts, comparison, interference, latency

__all__ = ["cold_starts", "comparison", "frontier", "interference", "latency", "mix_costs", "plan"]
