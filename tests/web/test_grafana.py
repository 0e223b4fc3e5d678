"""Dashboards and alerts: every metric and label that they name exists, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.web.grafana.alerts import ALERTS
from shoal.web.grafana.boards import BOARDS
from shoal.web.grafana.panels import board_json
from tests.web.conftest import WebHouse

SOURCES = Path(shoal.__file__).parent

EXPRESSIONS = {
    **{
        f"{board.name}: {panel.title}": query.expression
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
    },
    **{one.name: one.expression for one in ALERTS},
}
_METRIC = re.compile(r"\b(shoal_[a-z0-9_]+)")
_SUFFIX = re.compile(r"_(total|bucket|count|sum)$")


def known_names() -> set[str]:
    """As the sources declare them, some with the suffix of counters."""
    return {
        name
        for path in SOURCES.rglob("*.py")
        if "grafana" not in path.parts
        for name in re.findall(r'"(shoal_[a-z0-9_]+)"', path.read_text())
    }


def test_every_metric_exists() -> None:
    known = known_names()
    for where, expression in EXPRESSIONS.items():
        names = set(_METRIC.findall(expression))
        assert names or where == "ShoalDown"
        assert {one for one in names if one not in known and _SUFFIX.sub("", one) not in known} == set(), where


@pytest.mark.virtual_time
async def test_metrics_of_the_server_have_the_suffixes_and_labels_that_are_asked_for(house: WebHouse) -> None:
    await house.submit("red", seconds=1)
    await house.world.until(lambda: not list(house.plane.snapshot().running.values()))
    async with house.client("admin") as client:
        await client.get("/v1/jobs")
        text = (await client.get("/metrics")).text
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            samples.setdefault(one.name, set()).update(one.labels)
    families = {_SUFFIX.sub("", name) for name in samples}
    checked = set()
    for where, expression in EXPRESSIONS.items():
        for name, matchers in re.findall(r"\b(shoal_[a-z0-9_]+)(?:\{([^}]*)\})?", expression):
            if _SUFFIX.sub("", name) not in families:
                continue  # of a part that is not on here
            assert name in samples, f"{where}: {name}"
            asked = set(re.findall(r"(\w+)\s*[=!]~?", matchers))
            assert asked <= samples[name], f"{where}: {name} has the labels {samples[name]}"
            checked.add(name)
    assert {"shoal_jobs", "shoal_queue_wait_seconds_bucket", "shoal_nodes", "shoal_home_free_bytes"} <= checked


def test_panels_stand_beside_each_other_and_legends_name_labels() -> None:
    for board in BOARDS:
        made = board_json(board)
        taken: set[tuple[int, int]] = set()
        for panel in made["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            assert max(x for x, _ in cells) < 24
            taken |= cells
        assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
        variables = {one["name"] for one in made["templating"]["list"]} | {"__rate_interval"}
        assert set(re.findall(r"\$(\w+)", json.dumps(made["panels"]))) <= variables | {"datasource"}
    assert len({board.name for board in BOARDS}) == len(BOARDS)


def test_the_files_are_written(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["dashboards", "--out", str(tmp_path / "new"), "--json"])
    assert told.exit_code == 0, told.output
    files = [Path(one) for one in json.loads(told.stdout)["files"]]
    assert sorted(one.name for one in files) == sorted(one.name for one in (tmp_path / "new").iterdir())
    for one in files:
        found = json.loads(one.read_text()) if one.suffix == ".json" else yaml.safe_load(one.read_text())
        assert found
        assert one.stat().st_mode & 0o777 == 0o644


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = CliRunner().invoke(app, ["dashboards", "--out", str(tmp_path / "file" / "below")])
    assert told.exit_code != 0
    assert "error:" in told.stderr


# --- by Prometheus itself ---

SERIES: Mapping[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {
    # name: series by which it fires, and series by which it does not
    "ShoalDown": ([('up{job="shoal"}', "0x120")], [('up{job="shoal"}', "1x120")]),
    "ShoalServiceOutOfObjective": (
        [('shoal_serve_latency_seconds{tenant="red",model="m",version="1",quantile="0.99"}', "0.2x120"),
         ('shoal_service_objective_seconds{tenant="red",service="s",model="m"}', "0.1x120")],
        [('shoal_serve_latency_seconds{tenant="red",model="m",version="1",quantile="0.99"}', "0.05x120"),
         ('shoal_serve_latency_seconds{tenant="red",model="m",version="1",quantile="0.5"}', "0.2x120"),
         ('shoal_serve_latency_seconds{tenant="blue",model="m",version="1",quantile="0.99"}', "0.2x120"),
         ('shoal_service_objective_seconds{tenant="red",service="s",model="m"}', "0.1x120")],
    ),
    "ShoalServiceWithoutReplica": (
        [('shoal_service_ready_replicas{tenant="red",service="s"}', "0x120")],
        [('shoal_service_ready_replicas{tenant="red",service="s"}', "1x120")],
    ),
    "ShoalRequestsRefused": (
        [('shoal_serve_requests_total{tenant="red",model="m",version="1",outcome="rejected"}', "0+10x120"),
         ('shoal_serve_requests_total{tenant="red",model="m",version="1",outcome="success"}', "0+90x120")],
        [('shoal_serve_requests_total{tenant="red",model="m",version="1",outcome="rejected"}', "0+1x120"),
         ('shoal_serve_requests_total{tenant="red",model="m",version="1",outcome="success"}', "0+99x120")],
    ),
    "ShoalQueueOld": (
        [('shoal_queue_oldest_seconds{tenant="red"}', "30000x120")],
        [('shoal_queue_oldest_seconds{tenant="red"}', "3000x120")],
    ),
    "ShoalNothingStarts": (
        [('shoal_jobs{tenant="red",state="QUEUED"}', "3x120"), ('shoal_devices_free{node="n",type="a100"}', "1x120"),
         ('shoal_job_steps_total{tenant="red",state="ADMITTED"}', "7x120")],
        [('shoal_jobs{tenant="red",state="QUEUED"}', "3x120"), ('shoal_devices_free{node="n",type="a100"}', "1x120"),
         ('shoal_job_steps_total{tenant="red",state="ADMITTED"}', "0+1x120")],
    ),
    "ShoalJobsFail": (
        [('shoal_attempts_ended_total{tenant="red",outcome="failed"}', "0+3x120"),
         ('shoal_attempts_ended_total{tenant="red",outcome="succeeded"}', "0+1x120")],
        [('shoal_attempts_ended_total{tenant="red",outcome="failed"}', "0+1x120"),
         ('shoal_attempts_ended_total{tenant="red",outcome="preempted"}', "0+3x120")],
    ),
    "ShoalNodeLost": (
        [('shoal_nodes{state="open"}', "4x60 3x60")],
        [('shoal_nodes{state="open"}', "3x60 4x60")],
    ),
    "ShoalDiskLow": (
        [("shoal_home_free_bytes", "5x120"), ("shoal_home_size_bytes", "100x120")],
        [("shoal_home_free_bytes", "50x120"), ("shoal_home_size_bytes", "100x120")],
    ),
    "ShoalGuardFails": ([("shoal_guard_faults_total", "0+1x120")], [("shoal_guard_faults_total", "7x120")]),
    "ShoalGuaranteeBroken": (
        [("shoal_guard_violated_seconds_total", "0+6x120")],
        [("shoal_guard_violated_seconds_total", "0+1x120")],
    ),
    "ShoalSlowDecisions": ([("shoal_last_decision_seconds", "2x120")], [("shoal_last_decision_seconds", "0.1x120")]),
}  # fmt: skip


def test_each_alert_is_tried() -> None:
    assert set(SERIES) == {one.name for one in ALERTS}


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: `apt-get install prometheus`")
    assert CliRunner().invoke(app, ["dashboards", "--out", str(tmp_path)]).exit_code == 0
    rules = tmp_path / "shoal-alerts.yaml"
    subprocess.run([promtool, "check", "rules", rules], check=True)
    tests: list[dict[str, Any]] = []
    for name, (fires, rests) in SERIES.items():
        for series, firing in ((fires, True), (rests, False)):
            # Of an alert that fires, promtool wants labels and words: the number of them is asked instead.
            expected = [{"labels": "{}", "value": 1}] if firing else []
            tests.append({
                "interval": "1m",
                "input_series": [{"series": one, "values": values} for one, values in series],
                "promql_expr_test": [{
                    "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})', "eval_time": "110m",
                    "exp_samples": expected,
                }],
            })  # fmt: skip
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": tests}))
    subprocess.run([promtool, "test", "rules", tmp_path / "tests.yaml"], check=True)


@pytest.mark.slow
def test_every_expression_is_promql(tmp_path: Path) -> None:
    """Rules are checked, so each expression of a dashboard becomes one."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: `apt-get install prometheus`")
    plain = {
        where: expression.replace("$__rate_interval", "5m").replace("$tenant", ".*")
        for where, expression in EXPRESSIONS.items()
    }
    found = {
        "groups": [{"name": "all", "rules": [{"record": f"r{n}", "expr": one} for n, one in enumerate(plain.values())]}]
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(found))
    subprocess.run([promtool, "check", "rules", tmp_path / "rules.yaml"], check=True)
