"""Kubernetes objects of a gang: a Job, a Service, and a Secret with the key of its secrets. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.core import CPU_SLOT, Fault
from shoal.engine.kubernetes.jobs import GANG, INDEX, MARK, RELEASED
from shoal.engine.kubernetes.nodes import HOSTNAME, Kind, affinity_of, tolerations_of
from shoal.engine.kubernetes.settings import KubernetesSettings
from shoal.engine.pool import wanted
from shoal.engine.protocol import Gang, LaunchFailed, Refused

POD_GROUP = "scheduling.x-k8s.io"
"""API group of the coscheduling plugin's pod groups."""

_KEPT_S = 3600
_NODE_LOST_AFTER_S = 30
"""So long a pod stays on a node that does not answer; Kubernetes' own default is 300 s."""
_LATE_S = 15
"""So long after a rank's grace its supervisor may take, before the kubelet kills it."""


def name_of(gang: str, mark: str) -> str:
    """The same for the same gang of a home, always; a name of the DNS, at most 63 characters with an index behind."""
    told = hashlib.sha256(f"{mark}/{gang}".encode()).hexdigest()[:8]
    slug = re.sub(r"[^a-z0-9]+", "-", gang.lower()).strip("-")[:40].rstrip("-")
    return f"shoal-{slug}-{told}" if slug else f"shoal-{told}"


def job(
    gang: Gang, *,
    mark: str, token: str, command: str, user: tuple[int, int], sealed: bool, mount: Path,
    settings: KubernetesSettings, kinds: Mapping[str, Kind], pod_groups: bool,
) -> dict[str, Any]:  # fmt: skip
    """The Job of a gang, which makes no pod before it is released. `user`: uid and gid of its processes, which the
    shared volume belongs to. Raises LaunchFailed for what Kubernetes cannot promise."""
    if gang.ranks_per_node > 1:
        raise Refused(
            f"Kubernetes cannot be asked for {gang.ranks_per_node} ranks on each node", where=gang.name,
            hint="leave ranks_per_node out, or set it to 1",
        )  # fmt: skip
    name = name_of(gang.name, mark)
    labels = {MARK: mark, "shoal.dev/job": name}
    grouped = {f"{POD_GROUP}/pod-group": name} if pod_groups else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {GANG: gang.name, "shoal.dev/launch": token},
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": len(gang.ranks),
            "parallelism": len(gang.ranks),
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": _KEPT_S,
            "suspend": True,
            "template": {
                "metadata": {"labels": {**labels, **grouped}},
                "spec": _pod(
                    gang, name=name, command=command, user=user, sealed=sealed, mount=mount, settings=settings,
                    kinds=kinds,
                ),
            },
        },
    }  # fmt: skip


def release(gang: Gang, settings: KubernetesSettings) -> dict[str, Any]:
    """The change by which a Job may begin, once all that belongs to it is there: at once, or when Kueue likes."""
    metadata: dict[str, Any] = {"annotations": {RELEASED: "yes"}}
    queue = settings.queue.format(tenant=gang.env.get("SHOAL_TENANT", ""))
    if queue:
        return {"metadata": {**metadata, "labels": {"kueue.x-k8s.io/queue-name": queue}}}
    return {"metadata": metadata, "spec": {"suspend": False}}


def _pod(
    gang: Gang, *, name: str, command: str, user: tuple[int, int], sealed: bool, mount: Path,
    settings: KubernetesSettings, kinds: Mapping[str, Kind],
) -> dict[str, Any]:  # fmt: skip
    resources, selector = _resources(gang, kinds, settings)
    volume: dict[str, Any] = {"hostPath": {"path": str(mount), "type": "Directory"}}
    if settings.volume:
        volume = {"persistentVolumeClaim": {"claimName": settings.volume}}
    env: list[dict[str, Any]] = [
        {"name": "SHOAL_TASK_RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}},
        {"name": "SHOAL_TASK_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {
            "name": "SHOAL_TASK_JOB",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}},
        },
    ]
    if sealed:
        env.append({"name": "SHOAL_SEAL", "valueFrom": {"secretKeyRef": {"name": name, "key": "seal"}}})
    optional: dict[str, Any] = {}
    if selector:
        optional["nodeSelector"] = selector
    if settings.priority_class:
        optional["priorityClassName"] = settings.priority_class
    if settings.service_account:
        optional["serviceAccountName"] = settings.service_account
    if affinity := {**affinity_of(gang.affinity), **_near(gang, name, settings)}:
        optional["affinity"] = affinity
    uid, gid = user
    return {
        "restartPolicy": "Never",
        "subdomain": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(gang.grace_s) + _LATE_S,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _NODE_LOST_AFTER_S,
            }
            for state in ("not-ready", "unreachable")
        ]
        + tolerations_of(gang.affinity),
        "containers": [
            {
                "name": "rank",
                "image": gang.image or settings.image,
                "command": ["/bin/sh", "-c", command],
                "env": env,
                "resources": resources,
                "volumeMounts": [{"name": "shoal", "mountPath": str(mount)}],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "runAsGroup": gid,
                    "runAsNonRoot": uid != 0,
                    "runAsUser": uid,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            }
        ],
        "volumes": [{"name": "shoal", **volume}],
        **optional,
    }


def _near(gang: Gang, name: str, settings: KubernetesSettings) -> dict[str, Any]:
    """Ranks near each other where that can be, and on nodes of their own where that was asked for."""
    if len(gang.ranks) == 1:
        return {}
    others = {"labelSelector": {"matchLabels": {"shoal.dev/job": name}}}
    found: dict[str, Any] = {}
    labels = [label for label in settings.together.split(",") if label]
    if labels:
        found["podAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100 // at, "podAffinityTerm": {**others, "topologyKey": label}}
                for at, label in enumerate(labels, start=1)
            ]
        }
    if gang.ranks_per_node == 1:
        apart = {**others, "topologyKey": HOSTNAME}
        found["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return found


def _resources(
    gang: Gang, kinds: Mapping[str, Kind], settings: KubernetesSettings
) -> tuple[dict[str, Any], dict[str, str]]:
    """What each pod asks for, and the labels of the nodes that have it."""
    each = wanted(gang.ranks[0])
    slots = each.pop(CPU_SLOT, 0)
    if len(each) > 1:
        raise Refused(f"a rank asks for several types: {', '.join(sorted(each))}", where=gang.name)
    requests = {"cpu": f"{max(gang.cpu_milli, slots * 1000, 10)}m"}
    limits: dict[str, str] = {}
    selector: dict[str, str] = {}
    for called, count in each.items():
        kind = kinds.get(called)
        if kind is None:
            there = ", ".join(sorted(kinds)) or "none"
            what = f"no node of the cluster has {called}; its types are: {there}"
            raise LaunchFailed(what, fault=Fault.PLATFORM, where=gang.name)
        limits[kind.resource] = requests[kind.resource] = str(count)
        if kind.label:
            selector[settings.type_label] = kind.label
    if gang.memory_bytes:
        limits["memory"] = requests["memory"] = str(gang.memory_bytes)
    return {"requests": requests, **({"limits": limits} if limits else {})}, selector


def companions(owner: Mapping[str, Any], *, key: str, pod_groups: bool) -> list[dict[str, Any]]:
    """What belongs to a Job that was created, and goes with it."""
    metadata = owner["metadata"]
    name, members = metadata["name"], owner["spec"]["completions"]
    reference = {
        "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata["uid"], "controller": True,
        "blockOwnerDeletion": False,
    }  # fmt: skip
    common = {
        "name": name,
        "namespace": metadata["namespace"],
        "labels": {MARK: metadata["labels"][MARK]},
        "ownerReferences": [reference],
    }
    selector = {"shoal.dev/job": name}
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": common,
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
        }
    ]  # fmt: skip
    if key:
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": common, "stringData": {"seal": key}})
    if pod_groups:
        found.append(
            {
                "apiVersion": f"{POD_GROUP}/v1alpha1", "kind": "PodGroup", "metadata": common,
                "spec": {"minMember": members},
            }
        )  # fmt: skip
    return found
