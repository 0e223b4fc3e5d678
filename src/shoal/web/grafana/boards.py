"""The dashboards."""

from __future__ import annotations

from shoal.web.grafana.panels import Board, Choice, Panel, Query

_TENANT = 'tenant=~"$tenant"'


def _of(
    title: str, expression: str, legend: str = "", unit: str = "short", text: str = "", *, stacked: bool = False
) -> Panel:
    return Panel(title, (Query(expression, legend),), unit, text, stacked=stacked)


def _now(title: str, expression: str, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, (Query(expression),), unit, text, now=True, width=6)


def _quantiles(title: str, metric: str, text: str, by: str = "") -> Panel:
    sums = f"sum by (le{', ' + by if by else ''}) (rate({metric}_bucket{{{_TENANT}}}[$__rate_interval]))"
    queries = (
        Query(f"histogram_quantile({part}, {sums})", f"{name}{' {{' + by + '}}' if by else ''}")
        for part, name in ((0.5, "median"), (0.95, "95 %"))
    )
    return Panel(title, tuple(queries), "s", text)


JOBS = Board(
    "jobs", "Shoal: jobs", "What runs, what waits, how long, and how attempts end.",
    (
        _now("Running", f'sum(shoal_jobs{{{_TENANT}, state="RUNNING"}})'),
        _now("Waiting", f'sum(shoal_jobs{{{_TENANT}, state="QUEUED"}})'),
        _now("Oldest wait", f"max(shoal_queue_oldest_seconds{{{_TENANT}}})", "s"),
        _now("Accelerators in use", "1 - sum(shoal_devices_free) / sum(shoal_devices)", "percentunit"),
        _of("Jobs by state", f'sum by (state) (shoal_jobs{{{_TENANT}, state=~"QUEUED|STARTING|DOWNLOADING|RUNNING|'
            f'CHECKPOINTING|STORING|SUSPENDED"}})', "{{state}}", stacked=True),
        _of("Submissions", f"sum by (tenant) (rate(shoal_jobs_submitted_total{{{_TENANT}}}[$__rate_interval]))",
            "{{tenant}}", "ops", "jobs a second"),
        _quantiles("Wait before a start", "shoal_queue_wait_seconds", "of jobs that started"),
        _of("Oldest waiting job", f"shoal_queue_oldest_seconds{{{_TENANT}}}", "{{tenant}}", "s"),
        _of("Attempts by outcome",
            f"sum by (outcome) (rate(shoal_attempts_ended_total{{{_TENANT}}}[$__rate_interval]))",
            "{{outcome}}", "ops", stacked=True),
        _quantiles("Run time of attempts", "shoal_attempt_run_seconds", "of attempts that ended"),
        _of("Free accelerators by node", "shoal_devices_free", "{{node}} {{type}}"),
        _of("Nodes", "shoal_nodes", "{{state}}"),
    ),
    (Choice("tenant", "shoal_jobs"),),
)  # fmt: skip

SERVICES = Board(
    "services", "Shoal: services", "Latency against the objective, goodput, refusals, replicas.",
    (
        _now("Live services", f"sum(shoal_services{{{_TENANT}}})"),
        _now("Requests that wait", f"sum(shoal_serve_waiting{{{_TENANT}}})"),
        _now("Answered", f'sum(rate(shoal_serve_requests_total{{{_TENANT}, outcome="success"}}[$__rate_interval]))',
             "reqps"),
        _now("Not answered",
             f'sum(rate(shoal_serve_requests_total{{{_TENANT}, outcome!="success"}}[$__rate_interval])) / '
             f"sum(rate(shoal_serve_requests_total{{{_TENANT}}}[$__rate_interval]))", "percentunit"),
        Panel("Latency and objective", (
            Query(f'max by (tenant, model) (shoal_serve_latency_seconds{{{_TENANT}, quantile="0.99"}})',
                  "{{tenant}}/{{model}} p99"),
            Query(f"max by (tenant, model) (shoal_service_objective_seconds{{{_TENANT}}})",
                  "{{tenant}}/{{model}} objective"),
        ), "s", "the 99th percentile of the last minute, in the gateway"),
        _of("Median latency", f'max by (tenant, model) (shoal_serve_latency_seconds{{{_TENANT}, quantile="0.5"}})',
            "{{tenant}}/{{model}}", "s"),
        _of("Requests by outcome",
            f"sum by (outcome) (rate(shoal_serve_requests_total{{{_TENANT}}}[$__rate_interval]))",
            "{{outcome}}", "reqps", stacked=True),
        _of("Requests by model",
            f"sum by (tenant, model, version) (rate(shoal_serve_requests_total{{{_TENANT}}}[$__rate_interval]))",
            "{{tenant}}/{{model}} {{version}}", "reqps"),
        _of("Batch size",
            f"sum by (tenant, model) (rate(shoal_serve_samples_total{{{_TENANT}}}[$__rate_interval])) / "
            f"sum by (tenant, model) (rate(shoal_serve_executions_total{{{_TENANT}}}[$__rate_interval]))",
            "{{tenant}}/{{model}}"),
        Panel("Time of a request", (
            Query(f"sum(rate(shoal_serve_queue_seconds_total{{{_TENANT}}}[$__rate_interval])) / "
                  f"sum(rate(shoal_serve_samples_total{{{_TENANT}}}[$__rate_interval]))", "waits"),
            Query(f"sum(rate(shoal_serve_compute_seconds_total{{{_TENANT}}}[$__rate_interval])) / "
                  f"sum(rate(shoal_serve_samples_total{{{_TENANT}}}[$__rate_interval]))", "runs"),
        ), "s", "mean of a sample"),
        _of("Ready replicas", f"shoal_service_ready_replicas{{{_TENANT}}}", "{{tenant}}/{{service}}"),
        _of("Cost", f"sum by (tenant) (rate(shoal_serve_cost_usd_total{{{_TENANT}}}[$__rate_interval])) * 3600",
            "{{tenant}}", "currencyUSD", "dollars an hour"),
    ),
    (Choice("tenant", "shoal_services"),),
)  # fmt: skip

FAIRNESS = Board(
    "fairness", "Shoal: fairness", "What each tenant is owed, and what it gets.",
    (
        _of("Share received", "shoal_tenant_accelerators / ignoring(tenant) group_left() "
            "clamp_min(sum(shoal_tenant_accelerators), 1)", "{{tenant}}", "percentunit",
            "of the accelerators in use", stacked=True),
        _of("Share owed", "shoal_tenant_weight / ignoring(tenant) group_left() sum(shoal_tenant_weight)", "{{tenant}}",
            "percentunit", "by weight, of all tenants: what idle ones leave goes to the others", stacked=True),
        _of("Received in a day", "sum by (tenant) (avg_over_time(shoal_tenant_accelerators[1d])) * 24", "{{tenant}}",
            "short", "accelerator-hours of the last day"),
        _of("Time left of a turn", "shoal_tenant_deficit_seconds", "{{tenant}}", "s",
            "what deficit round robin lets a tenant still start, in accelerator-seconds"),
        _of("Oldest waiting job", "shoal_queue_oldest_seconds", "{{tenant}}", "s"),
        _of("Wait before a start, 95 %", "histogram_quantile(0.95, sum by (le, tenant) "
            "(rate(shoal_queue_wait_seconds_bucket[$__rate_interval])))", "{{tenant}}", "s"),
    ),
)  # fmt: skip

GUARD = Board(
    "guard", "Shoal: guard", "Whether guaranteed work runs as if alone, and what its neighbours pay for that.",
    (
        _of("Slowdown of guaranteed work", "shoal_guard_slowdown", "{{group}}", "short", "1 is undisturbed"),
        _of("Time out of the promise", "rate(shoal_guard_violated_seconds_total[$__rate_interval])", "", "percentunit"),
        _of("Share of best-effort groups", "shoal_guard_share_ratio", "{{group}}", "percentunit"),
        _of("Frozen groups", "shoal_guard_frozen", "{{group}}"),
        _of("Saturation of memory", "shoal_guard_domain_saturation_ratio", "domain {{domain}}", "percentunit"),
        _of("Memory traffic", "shoal_guard_group_bytes_per_second", "{{group}}", "Bps"),
        _of("Changes of limits", "rate(shoal_guard_changes_total[$__rate_interval])", "changes", "ops"),
        _of("Failures", "rate(shoal_guard_faults_total[$__rate_interval])", "sensors, actuators, policy", "ops"),
    ),
)  # fmt: skip

DEVICE = Board(
    "device", "Shoal: shared devices", "Who is on each device, who waits, and what best-effort kernels cost others.",
    (
        _of("Memory", "shoal_device_memory_bytes", "{{device}} {{process}}", "bytes", stacked=True),
        _of("Kernels", "rate(shoal_device_launches_total[$__rate_interval])", "{{device}} {{process}}", "ops"),
        _of("Waiting of best-effort launches",
            "sum by (device, process, reason) (rate(shoal_device_waited_seconds_total[$__rate_interval]))",
            "{{device}} {{process}}: {{reason}}", "percentunit"),
        _of("Pieces over the bound",
            "rate(shoal_device_violations_total[$__rate_interval]) / clamp_min(rate(shoal_device_pieces_total"
            "[$__rate_interval]), 1e-9)", "{{device}} {{process}}", "percentunit"),
    ),
)  # fmt: skip

SERVER = Board(
    "server", "Shoal: server", "The control plane itself: its API, its decisions, its disk.",
    (
        _now("Up for", "shoal_uptime_seconds", "s"),
        _now("Live jobs", "shoal_live_jobs"),
        _now("Last decision", "shoal_last_decision_seconds", "s"),
        _now("Free disk", "shoal_home_free_bytes / shoal_home_size_bytes", "percentunit",
             "of the file system of the home"),
        _of("Requests by status", "sum by (status) (rate(shoal_http_requests_total[$__rate_interval]))",
            "{{status}}", "reqps", stacked=True),
        _of("Time to answer, 95 %", "histogram_quantile(0.95, sum by (le, route) (rate("
            'shoal_http_request_seconds_bucket{route!~".*(events|log|stream).*"}[$__rate_interval])))',
            "{{route}}", "s", "streams left out"),
        _of("Decisions", "rate(shoal_decision_cycles[$__rate_interval])", "a second", "ops"),
        Panel("Open streams", (Query("shoal_event_streams", "events"), Query("shoal_web_streams", "web pages"))),
        _of("Orphans repaired", "shoal_repaired", "since the start"),
        _of("Sign-ins", "shoal_web_sessions", "to the web page"),
    ),
)  # fmt: skip

BOARDS = (JOBS, SERVICES, FAIRNESS, GUARD, DEVICE, SERVER)
