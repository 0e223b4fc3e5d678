"""Panels and dashboards as values, and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT, _STAT_HEIGHT = 24, 8, 4
_SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression; `legend` has labels as `{{tenant}}`."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` is Grafana's name of one: s, bytes, short, percentunit, reqps. `now` shows the last value alone."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    text: str = ""
    now: bool = False
    width: int = 12
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A label's values, to choose from above the panels: `$name` in expressions."""

    name: str
    metric: str


@dataclass(frozen=True, slots=True)
class Board:
    name: str
    title: str
    text: str
    panels: tuple[Panel, ...]
    choices: tuple[Choice, ...] = ()


def board_json(board: Board) -> dict[str, Any]:
    """As Grafana imports it."""
    return {
        "uid": f"shoal-{board.name}",
        "title": board.title,
        "description": board.text,
        "tags": ["shoal"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), *(_choice(one) for one in board.choices)]},
        "links": [{"type": "dashboards", "tags": ["shoal"], "title": "Shoal", "asDropdown": True}],
        "panels": [
            _panel(number, panel, place) for number, (panel, place) in enumerate(_placed(board.panels), start=1)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _choice(one: Choice) -> dict[str, Any]:
    query = f"label_values({one.metric}, {one.name})"
    return {
        "name": one.name, "type": "query", "datasource": _SOURCE, "definition": query,
        "query": {"query": query, "refId": one.name}, "includeAll": True, "multi": True, "allValue": ".*", "refresh": 2,
        "sort": 1, "current": {"text": ["All"], "value": ["$__all"]},
    }  # fmt: skip


def _placed(panels: Sequence[Panel]) -> list[tuple[Panel, dict[str, int]]]:
    """Side by side, from left to right and from the top."""
    found: list[tuple[Panel, dict[str, int]]] = []
    x = y = tallest = 0
    for one in panels:
        height = _STAT_HEIGHT if one.now else _HEIGHT
        if x + one.width > _WIDTH:
            x, y, tallest = 0, y + tallest, 0
        found.append((one, {"x": x, "y": y, "w": one.width, "h": height}))
        x, tallest = x + one.width, max(tallest, height)
    return found


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom = {"fillOpacity": 30 if panel.stacked else 8, "showPoints": "never",
              "stacking": {"mode": "normal" if panel.stacked else "none"}}  # fmt: skip
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any]
    if panel.now:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    else:
        defaults["custom"] = custom
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {
        "id": number, "type": "stat" if panel.now else "timeseries", "title": panel.title, "description": panel.text,
        "datasource": _SOURCE, "gridPos": place, "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query.expression,
             "legendFormat": query.legend or "__auto"}
            for at, query in enumerate(panel.queries)
        ],
    }  # fmt: skip
