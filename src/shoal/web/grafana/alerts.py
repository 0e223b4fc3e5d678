"""Alert rules for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Alert:
    """`lasts` is how long the expression holds before somebody is told. `text` says what it means, with the alert's
    labels as `{{ $labels.tenant }}`; `act` what to do."""

    name: str
    expression: str
    lasts: str
    severity: str
    text: str
    act: str


ALERTS = (
    Alert(
        "ShoalDown", 'up{job="shoal"} == 0', "2m", "page", "The server does not answer.",
        "Jobs and services run on. Start it again: `shoal up`.",
    ),
    Alert(
        "ShoalServiceOutOfObjective",
        'max by (tenant, model) (shoal_serve_latency_seconds{quantile="0.99"})\n'
        "  > on (tenant, model) max by (tenant, model) (shoal_service_objective_seconds)",
        "5m", "page",
        "{{ $labels.tenant }}/{{ $labels.model }} is out of its objective: its 99th percentile is {{ $value }} s.",
        "`shoal explain` names the causes; more replicas: `shoal scale`.",
    ),
    Alert(
        "ShoalServiceWithoutReplica", "shoal_service_ready_replicas == 0", "5m", "page",
        "No replica of {{ $labels.tenant }}/{{ $labels.service }} takes requests.", "`shoal explain` says why.",
    ),
    Alert(
        "ShoalRequestsRefused",
        'sum by (tenant, model) (rate(shoal_serve_requests_total{outcome!="success"}[5m]))\n'
        "  / sum by (tenant, model) (rate(shoal_serve_requests_total[5m])) > 0.05",
        "10m", "ticket",
        "{{ $labels.tenant }}/{{ $labels.model }} does not answer {{ $value | humanizePercentage }} of its requests.",
        "`shoal explain` names the causes.",
    ),
    Alert(
        "ShoalQueueOld", "shoal_queue_oldest_seconds > 6 * 3600", "15m", "ticket",
        "A job of {{ $labels.tenant }} waits for {{ $value | humanizeDuration }}.",
        "`shoal explain JOB` ranks the causes, and says what would change each.",
    ),
    Alert(
        "ShoalNothingStarts",
        'sum(shoal_jobs{state="QUEUED"}) > 0 and sum(shoal_devices_free) > 0\n'
        '  and sum(increase(shoal_job_steps_total{state="ADMITTED"}[30m])) == 0',
        "30m", "ticket", "Jobs wait, accelerators are free, and none started for half an hour.",
        "`shoal explain JOB`: quotas, holds, or nodes on which no waiting job may run.",
    ),
    Alert(
        "ShoalJobsFail",
        'sum by (tenant) (rate(shoal_attempts_ended_total{outcome=~"failed|lost|rolled-back"}[30m]))\n'
        "  / sum by (tenant) (rate(shoal_attempts_ended_total[30m])) > 0.5",
        "30m", "ticket", "More than half of the attempts of {{ $labels.tenant }} fail.", "`shoal jobs --state FAILED`.",
    ),
    Alert(
        "ShoalNodeLost", 'shoal_nodes{state="open"} < max_over_time(shoal_nodes{state="open"}[1d])', "10m", "ticket",
        "Only {{ $value }} nodes take jobs, fewer than in the last day.",
        "`shoal nodes` says which are closed, and why.",
    ),
    Alert(
        "ShoalDiskLow", "shoal_home_free_bytes / shoal_home_size_bytes < 0.1", "10m", "page",
        "The disk of the server's home is nearly full: {{ $value | humanizePercentage }} are free.",
        "`shoal gc`, or shorter periods in the settings `keep`.",
    ),
    Alert(
        "ShoalGuardFails", "rate(shoal_guard_faults_total[10m]) > 0", "15m", "ticket",
        "Sensors or actuators of the guard fail.", "`shoal guard doctor`, and the guard's log.",
    ),
    Alert(
        "ShoalGuaranteeBroken", "rate(shoal_guard_violated_seconds_total[10m]) > 0.05", "15m", "ticket",
        "Guaranteed work was out of its promise for {{ $value | humanizePercentage }} of the time.",
        "`shoal status guard` shows who disturbs it.",
    ),
    Alert(
        "ShoalSlowDecisions", "shoal_last_decision_seconds > 1", "10m", "ticket",
        "A decision takes {{ $value }} s.", "`shoal status` shows whether the configured policy fails.",
    ),
)  # fmt: skip


def rules() -> dict[str, Any]:
    """The file of rules, as Prometheus reads it."""
    return {
        "groups": [
            {
                "name": "shoal",
                "rules": [
                    {
                        "alert": one.name, "expr": one.expression, "for": one.lasts,
                        "labels": {"severity": one.severity},
                        "annotations": {"summary": one.text, "description": one.act},
                    }
                    for one in ALERTS
                ],
            }
        ]
    }  # fmt: skip
