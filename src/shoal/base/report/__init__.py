"""Reports: one HTML page of sections, with figures as inline SVG and a table under each.

The page needs no network, no scripts and no fonts; it follows the reader's light or dark theme. Everything that comes
from outside is escaped.
"""

from shoal.base.report.charts import Area, Axis, Bars, Dots, Line, Mark, Rule, chart
from shoal.base.report.document import Cell, Figure, Report, Section, Table
from shoal.base.report.figures import bars, chart_of, distribution
from shoal.base.report.page import html, write_html
from shoal.base.report.scales import Categories, Linear, Log, Nines, Scale, duration

__all__ = [
    "Area", "Axis", "Bars", "Categories", "Cell", "Dots", "Figure", "Line", "Linear", "Log", "Mark", "Nines", "Report",
    "Rule", "Scale", "Section", "Table", "bars", "chart", "chart_of", "distribution", "duration", "html", "write_html",
]  # fmt: skip
