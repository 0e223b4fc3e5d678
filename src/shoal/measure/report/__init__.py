"""The sections of a report, one for each result. `shoal.base.report` makes the page of them."""

from shoal.measure.report.bills import mix_costs, plan
from shoal.measure.report.pareto import frontier
from shoal.measure.report.sections import comparison, interference

__all__ = ["comparison", "frontier", "interference", "mix_costs", "plan"]
