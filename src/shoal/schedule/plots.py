"""A comparison of simulated policies as one HTML page: a table, completion times, and their distributions.

Figures are inline SVG; the page needs no network, no scripts and no fonts, and follows the reader's light or dark
theme. Everything that comes from outside is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from shoal.schedule.metrics import COMPARED, HOUR, Metrics
from shoal.schedule.types import Array

WIDTH, HEIGHT, LEFT, BOTTOM = 720.0, 360.0, 56.0, 48.0
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #8b949e; --paper: #fff;
  --s0: #0969da; --s1: #bc4c00; --s2: #1a7f37; --s3: #8250df; --s4: #bf3989; --s5: #9a6700; --s6: #57606a;
  --s7: #cf222e }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --s0: #58a6ff; --s1: #f0883e;
  --s2: #3fb950; --s3: #bc8cff; --s4: #ff7eb6; --s5: #d29922; --s6: #adbac7; --s7: #ff7b72 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid var(--soft) }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } .grid { stroke: var(--soft); opacity: .3 }
.line { fill: none; stroke-width: 2 }
"""


def page(title: str, found: Sequence[Metrics], times_s: Mapping[str, Array], *, facts: Mapping[str, str]) -> str:
    """`times_s` are the completion times by policy; `facts` are shown under the title (trace, cluster, seed...)."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("policy", *(name for _, name in COMPARED)))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in (each.policy, *cells(each))) + "</tr>" for each in found
    )
    said = "; ".join(f"{escape(name)} {escape(value)}" for name, value in facts.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>Simulated: no job ran, and no accelerator was used. {said}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<h2>Completion times</h2>{distribution(times_s)}</body></html>\n"
    )


def cells(found: Metrics) -> list[str]:
    """A row of a table: the numbers of `COMPARED`, with their units."""
    texts = []
    for field, _ in COMPARED:
        value = getattr(found, field)
        if field.endswith("_h"):
            texts.append(f"{value:.2f} h")
        elif field == "utilisation":
            texts.append(f"{value:.0%}")
        elif field == "cost_usd":
            texts.append(f"${value:,.2f}" if value else "-")
        elif field.endswith("_s"):
            texts.append(f"{value:.2f} s")
        else:
            texts.append(f"{value:,}" if isinstance(value, int) else f"{value:.2f}")
    return texts


def distribution(times_s: Mapping[str, Array]) -> str:
    """The share of jobs that are done within a time since they arrived, which is on a logarithmic axis, by policy."""
    every = np.concatenate([np.maximum(times, 1.0) for times in times_s.values()]) / HOUR
    low, high = float(every.min()) / 1.1, float(every.max()) * 1.1
    span = math.log(high / low)
    legend = 20.0 * len(times_s)
    top, bottom, right = 10.0 + legend, HEIGHT + legend - BOTTOM, WIDTH - 16.0

    def place(hours: float, share: float) -> str:
        x = LEFT + math.log(hours / low) / span * (right - LEFT)
        return f"{x:.1f},{bottom - share * (bottom - top):.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT + legend:g}" role="img" xmlns="http://www.w3.org/2000/svg">'
        "<title>Distribution of simulated completion times</title>"
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * (bottom - top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x = place(10.0**power, 0.0).split(",")[0]
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 17}" text-anchor="middle">{10.0**power:g} h</text>')
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{bottom + 36}" text-anchor="middle">time from arrival to end</text>'
    )
    for at, (name, times) in enumerate(times_s.items()):
        style = f'style="stroke:var(--s{at % 8});stroke-dasharray:{_DASHES[at % 4] or "none"}"'
        ordered = np.sort(np.maximum(times, 1.0)) / HOUR
        ranks = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), 300)).round().astype(int))
        points = " ".join(place(float(ordered[rank]), (rank + 1) / len(ordered)) for rank in ranks)
        parts.append(f'<polyline class="line" {style} points="{points}"/>')
        y = 14.0 + 20.0 * at
        parts.append(f'<line class="line" {style} x1="{LEFT}" x2="{LEFT + 24}" y1="{y - 4}" y2="{y - 4}"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y}">{escape(name)}</text>')
    return "".join(parts) + "</svg>"
