"""A report as one HTML page that needs nothing else: no scripts, no fonts, no addresses outside."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count
from pathlib import Path

from shoal.base.report.document import Cell, Figure, Report, Section, Table, write

_STYLE = """
:root { color-scheme: light dark;
  --ground: #ffffff; --raised: #f5f6f8; --ink: #1b1f24; --quiet: #59636e;
  --line: #d7dce2; --heat: #d1495b; --warn: #fff3d6;
  --series-0: #1f6feb; --series-1: #c2410c; --series-2: #15803d; --series-3: #8b3fc7;
  --series-4: #0e7490; --series-5: #b4237a; --series-6: #7a5c00; --series-7: #57606a; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #0f1419; --raised: #1a2129; --ink: #e6e9ed; --quiet: #9aa5b1;
  --line: #323c47; --heat: #e5687a; --warn: #3d3116;
  --series-0: #6ea8fe; --series-1: #fb923c; --series-2: #4ade80; --series-3: #c49bf2;
  --series-4: #38bdd8; --series-5: #f472b6; --series-6: #e0b93f; --series-7: #a8b3bf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 .25rem; }
p { margin: .4rem 0; max-width: 46rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .75rem 0; font-size: .9rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
nav ul { padding-left: 1.2rem; margin: .5rem 0; } a { color: var(--series-0); }
.note { background: var(--warn); border-radius: 6px; padding: .5rem .8rem; margin: .75rem 0; max-width: 46rem; }
figure { margin: 1rem 0 1.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin: .5rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding: .25rem 0; white-space: nowrap; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid var(--line); }
th:first-child, td.words { text-align: left; } td.words { min-width: 14rem; }
thead th { color: var(--quiet); font-weight: 600; max-width: 13rem; overflow-wrap: break-word; }
tbody th { font-weight: 500; min-width: 9rem; max-width: 18rem; overflow-wrap: break-word; }
td { white-space: nowrap; } td.words { white-space: normal; }
td small { display: block; color: var(--quiet); font-size: .8em; } td.heat small { color: inherit; }
td.heat { background: color-mix(in srgb, var(--heat) var(--by), transparent); }
svg.chart { width: 100%; height: auto; max-width: 760px; display: block;
  background: var(--raised); border-radius: 8px; }
svg text { fill: var(--ink); }
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; }
@media print { main { max-width: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""


def html(report: Report) -> str:
    """The page. All that comes from results is escaped."""
    numbers = count()
    body = "\n".join(
        [
            f"<h1>{escape(report.title)}</h1>",
            _facts(report),
            _contents(report),
            *(part for at, section in enumerate(report.sections) for part in _section(section, at, numbers)),
            f"<footer>Made by Shoal on {escape(report.moment)}. This page needs no network and no scripts.</footer>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def write_html(report: Report, path: Path) -> None:
    """Raises Invalid if the file cannot be written."""
    write(path, html(report))


def _facts(report: Report) -> str:
    rows = {"made": report.moment, **report.facts}
    return "<dl>" + "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in rows.items()) + "</dl>"


def _contents(report: Report) -> str:
    if len(report.sections) < 2:
        return ""
    links = (f'<li><a href="#section-{at}">{escape(one.title)}</a></li>' for at, one in enumerate(report.sections))
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def _section(section: Section, at: int, numbers: Iterator[int]) -> Iterator[str]:
    yield f'<section aria-labelledby="section-{at}"><h2 id="section-{at}">{escape(section.title)}</h2>'
    if section.simulated:
        yield '<p class="note"><strong>Simulated:</strong> these figures come from a simulator, not from a server.</p>'
    for warning in section.warnings:
        yield f'<p class="note"><strong>Warning:</strong> {escape(warning)}</p>'
    for paragraph in section.text:
        yield f"<p>{escape(paragraph)}</p>"
    for figure in section.figures:
        yield from _figure(figure, next(numbers))
    for table in section.tables:
        yield _table(table)
    yield "</section>"


def _figure(figure: Figure, number: int) -> Iterator[str]:
    yield f"<figure><h3>{escape(figure.title)}</h3>"
    yield figure.draw(number)
    yield f"<figcaption>{_table(figure.table)}</figcaption></figure>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(_text(row[0]))}</th>{"".join(_cell(cell) for cell in row[1:])}</tr>'
        for row in table.rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(cell: str | Cell) -> str:
    text = _text(cell)
    value, _, interval = text.partition(" (")
    shown = escape(text)
    if " to " in interval and interval.endswith(")"):  # it stands below its value
        shown = f"{escape(value)}<small>{escape(interval[:-1])}</small>"
    if isinstance(cell, Cell) and cell.heat > 0:
        return f'<td class="heat" style="--by:{min(1.0, cell.heat) * 70:.0f}%">{shown}</td>'
    return f'<td class="words">{shown}</td>' if len(text) > 40 else f"<td>{shown}</td>"


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell
