"""A small Kubernetes of our own, for the contract with the real one: an API server over HTTP, and in one thread what
a Job controller, a scheduler, a kubelet for each node and a garbage collector do. Pods run as real processes of this
machine. Faults come on demand.

Kept from the real one: resource versions and 409, watches that resume, end and forget (410), selectors, owners that
take what is theirs along, graceful deletion, phases and conditions of pods and Jobs.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import os
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

Object = dict[str, Any]
Key = tuple[str, str, str]

INDEX = "batch.kubernetes.io/job-completion-index"
KINDS = {
    "nodes": ("Node", "v1", False), "namespaces": ("Namespace", "v1", False), "pods": ("Pod", "v1", True),
    "services": ("Service", "v1", True), "secrets": ("Secret", "v1", True), "jobs": ("Job", "batch/v1", True),
    "podgroups": ("PodGroup", "scheduling.x-k8s.io/v1alpha1", True),
}  # fmt: skip
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v\w+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)


_REASONS = {403: "Forbidden", 422: "Invalid", 429: "TooManyRequests", 503: "ServiceUnavailable"}


class Refusal(Exception):
    """An answer that is no success, as the API gives it."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def status(self) -> Object:
        return {
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": self.code,
            "reason": self.reason, "message": self.message,
        }  # fmt: skip


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class FakeCluster:
    """All state, behind one lock. `token`: what a request has to bear, if anything. `groups`: optional API groups."""

    def __init__(self, *, token: str = "t0ken", groups: frozenset[str] = frozenset()) -> None:
        self.token = token
        self.groups = groups
        self.changed = threading.Condition()
        self.objects: dict[Key, Object] = {}
        self.version = 100
        self.log: list[tuple[int, str, str, Object]] = []
        self.oldest = 0
        self.failures: list[tuple[str, int]] = []
        self.requests: list[tuple[str, str]] = []
        self.scheduling = True
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kills_at: dict[str, float] = {}
        self.oom: set[str] = set()
        self.silent: set[str] = set()
        self.hidden: set[str] = set()
        """Kinds whose lists are empty, and are answered well all the same."""
        self.lists = 0
        """How many of them were asked for."""
        self.cut = 0
        self._over = False
        self.put("namespaces", {"metadata": {"name": "default"}})

    # --- what is stored ---

    def put(self, plural: str, each: Object, change: str = "ADDED") -> Object:
        with self.changed:
            kind, version, namespaced = KINDS[plural]
            metadata = each["metadata"]
            if namespaced:
                metadata.setdefault("namespace", "default")
            if change == "ADDED":
                metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            each |= {"apiVersion": version, "kind": kind}
            self.objects[plural, metadata.get("namespace", ""), metadata["name"]] = each
            self.log.append((self.version, change, plural, copy.deepcopy(each)))
            self.changed.notify_all()
            return each

    def touch(self, plural: str, each: Object) -> Object:
        return self.put(plural, each, "MODIFIED")

    def remove(self, plural: str, each: Object) -> None:
        with self.changed:
            metadata = each["metadata"]
            if self.objects.pop((plural, metadata.get("namespace", ""), metadata["name"]), None) is None:
                return
            self.version += 1
            gone = copy.deepcopy(each)
            gone["metadata"]["resourceVersion"] = str(self.version)
            self.log.append((self.version, "DELETED", plural, gone))
            self.changed.notify_all()
            if plural == "pods" and metadata.get("ownerReferences"):
                owner = self.objects.get(("jobs", metadata["namespace"], metadata["ownerReferences"][0]["name"]))
                if owner is not None:  # a pod that goes before it is done has failed
                    owner["status"]["failed"] = 1
            for other_plural, other in self.all():
                owners = other["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == metadata["uid"] for owner in owners):
                    self.delete(other_plural, other)

    def delete(self, plural: str, each: Object) -> None:
        """Pods end gracefully; all else goes at once."""
        if plural != "pods":
            self.remove(plural, each)
        elif "deletionTimestamp" not in each["metadata"]:
            each["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": 30}
            self.touch(plural, each)

    def all(self, plural: str = "") -> list[tuple[str, Object]]:
        with self.changed:
            return [(key[0], each) for key, each in self.objects.items() if plural in ("", key[0])]

    def list(self, plural: str) -> list[Object]:
        return [each for _, each in self.all(plural)]

    # --- faults and means of the tests ---

    def add_node(self, name: str, cpus: int = 8, gpus: int = 0, labels: Mapping[str, str] | None = None) -> None:
        has = {"cpu": str(cpus), "memory": "32Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        self.put(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
                "spec": {},
                "status": {
                    "allocatable": has, "capacity": has,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                },
            },
        )  # fmt: skip

    def node(self, name: str) -> Object:
        return self.objects["nodes", "", name]

    def pods_of(self, gang: str) -> list[Object]:
        found = [pod for pod in self.list("pods") if self._gang(pod) == gang]
        return sorted(found, key=lambda pod: int(pod["metadata"]["annotations"][INDEX]))

    def _gang(self, pod: Object) -> str:
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        job = self.objects.get(("jobs", pod["metadata"]["namespace"], owner))
        return str(job["metadata"]["annotations"]["shoal.dev/gang"]) if job is not None else ""

    def fail(self, *codes: int, method: str = "") -> None:
        """The next requests, of this method, are answered so; 0: they are carried out, and the answer is lost."""
        self.failures += [(method, code) for code in codes]

    def forget_the_past(self) -> None:
        """No watch can go on from an older version."""
        with self.changed:
            self.oldest = self.version
            self.log.clear()

    def cut_watches(self) -> None:
        with self.changed:
            self.cut += 1
            self.changed.notify_all()

    def disrupt(self, pod: Object, reason: str) -> None:
        """As preemption and eviction do."""
        with self.changed:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "by the test"}
            pod["status"].setdefault("conditions", []).append(condition)
            self.delete("pods", pod)
            self.kills_at[pod["metadata"]["uid"]] = time.monotonic() + 0.5

    def kill_for_memory(self, pod: Object) -> None:
        with self.changed:
            self.oom.add(pod["metadata"]["uid"])
            _kill_container(self.processes[pod["metadata"]["uid"]])

    def lose_node(self, name: str) -> None:
        """Its kubelet says nothing more; what runs there goes on."""
        with self.changed:
            self.silent.add(name)
            node = self.node(name)
            node["status"]["conditions"][0] |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
            self.touch("nodes", node)
            for pod in self.list("pods"):
                if pod["spec"].get("nodeName") == name:
                    self.delete("pods", pod)

    # --- the controllers ---

    def run(self) -> None:
        while not self._over:
            with self.changed:
                for job in self.list("jobs"):
                    self._control(job)
                for pod in self.list("pods"):
                    self._schedule(pod)
                    self._run_pod(pod)
                self.changed.wait(0.02)

    def stop(self) -> None:
        with self.changed:
            self._over = True
            self.cut += 1
            self.changed.notify_all()
        for process in self.processes.values():
            _kill_container(process)

    def _control(self, job: Object) -> None:
        spec, status = job["spec"], job.setdefault("status", {})
        conditions = status.setdefault("conditions", [])
        if spec.get("suspend") or any(one["type"] in ("Complete", "Failed") for one in conditions):
            return
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        pods = [pod for pod in self.list("pods") if pod["metadata"]["ownerReferences"][0]["uid"] == uid]
        phases = [pod["status"]["phase"] for pod in pods]
        given_up = any(one["type"] == "FailureTarget" for one in conditions)
        if given_up or "failed" in status or "Failed" in phases:
            if not given_up:
                conditions.append({"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"})
                self.touch("jobs", job)
            for pod in pods:
                if pod["status"]["phase"] not in ("Failed", "Succeeded"):
                    self.delete("pods", pod)
            if all(phase in ("Failed", "Succeeded") for phase in phases):
                told = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "a pod failed"}
                conditions.append(told)
                self.touch("jobs", job)
            return
        if len(pods) == spec["completions"] and set(phases) == {"Succeeded"}:
            conditions.append({"type": "Complete", "status": "True"})
            self.touch("jobs", job)
            return
        made = {pod["metadata"]["annotations"][INDEX] for pod in pods}
        for index in map(str, range(spec["completions"])):
            if index not in made:
                self.put("pods", _pod_of(job, name, uid, index))

    def _schedule(self, pod: Object) -> None:
        if not self.scheduling or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            if "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName"):
                self.remove("pods", pod)
            return
        lacks: dict[str, int] = {}
        nodes = self.list("nodes")
        for node in sorted(nodes, key=lambda node: (-self._near(pod, node), node["metadata"]["name"])):
            why = self._unfit(pod, node)
            if not why:
                pod["spec"]["nodeName"] = node["metadata"]["name"]
                _condition(pod, "PodScheduled", "True")
                self.touch("pods", pod)
                return
            lacks[why] = lacks.get(why, 0) + 1
        said = ", ".join(f"{count} {why}" for why, count in sorted(lacks.items()))
        if _condition(pod, "PodScheduled", "False", "Unschedulable", f"0/{len(nodes)} nodes are available: {said}."):
            self.touch("pods", pod)

    def _near(self, pod: Object, node: Object) -> int:
        """What the pod's preferred affinity gives a node, as the scheduler's score counts it."""
        terms = pod["spec"].get("affinity", {}).get("podAffinity", {})
        score = 0
        for each in terms.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            label, match = (
                each["podAffinityTerm"]["topologyKey"],
                each["podAffinityTerm"]["labelSelector"]["matchLabels"],
            )
            value = node["metadata"]["labels"].get(label)
            for other in self.list("pods"):
                placed = other["spec"].get("nodeName")
                if value and placed and match.items() <= other["metadata"]["labels"].items():
                    score += each["weight"] * (self.node(placed)["metadata"]["labels"].get(label) == value)
        return score

    def _unfit(self, pod: Object, node: Object) -> str:
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        ready = next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")
        if ready != "True" or node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
            return "node(s) didn't match Pod's node affinity/selector"
        there = [
            other for other in self.list("pods")
            if other["spec"].get("nodeName") == name and other["status"]["phase"] not in ("Succeeded", "Failed")
        ]  # fmt: skip
        apart = pod["spec"].get("affinity", {}).get("podAntiAffinity")
        if apart:
            match = apart["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"]["matchLabels"]
            if any(match.items() <= other["metadata"]["labels"].items() for other in there):
                return "node(s) didn't match pod anti-affinity rules"
        for resource, wanted in _requests(pod).items():
            taken = sum(_requests(other).get(resource, 0) for other in there)
            if taken + wanted > _amount(node["status"]["allocatable"].get(resource, "0")):
                return f"Insufficient {resource}"
        return ""

    def _run_pod(self, pod: Object) -> None:
        metadata, status = pod["metadata"], pod["status"]
        uid, where = metadata["uid"], pod["spec"].get("nodeName")
        if not where or where in self.silent:
            return
        process = self.processes.get(uid)
        if process is None and status["phase"] == "Pending":
            if "deletionTimestamp" in metadata:
                self.remove("pods", pod)
            else:
                self._start(pod)
        elif process is not None and status["phase"] == "Running":
            if "deletionTimestamp" in metadata:
                grace = min(metadata["deletionGracePeriodSeconds"], pod["spec"]["terminationGracePeriodSeconds"])
                if uid not in self.kills_at:
                    self.kills_at[uid] = time.monotonic() + grace
                    process.terminate()
                elif time.monotonic() >= self.kills_at[uid]:
                    _kill_container(process)
            if process.poll() is not None:
                self._ended(pod, process.returncode)
        elif "deletionTimestamp" in metadata and status["phase"] in ("Succeeded", "Failed"):
            self.remove("pods", pod)

    def _start(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        image = container["image"]
        if image.startswith(("missing/", "INVALID")):
            reason = "InvalidImageName" if image.startswith("INVALID") else "ImagePullBackOff"
            self._waits(pod, reason, f"image {image}")
            return
        env = {"PATH": os.environ["PATH"], "HOSTNAME": metadata_name(pod)}
        for one in container.get("env") or ():
            try:
                env[one["name"]] = one["value"] if "value" in one else self._from(pod, one["valueFrom"])
            except KeyError as missing:
                self._waits(pod, "CreateContainerConfigError", f"secret {missing} not found")
                return
        self.processes[pod["metadata"]["uid"]] = subprocess.Popen(
            container["command"], env=env, cwd="/", start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        pod["status"] |= {"phase": "Running", "podIP": "127.0.0.1"}
        _container(pod, {"running": {"startedAt": now()}})
        self.touch("pods", pod)

    def _from(self, pod: Object, source: Object) -> str:
        if "secretKeyRef" in source:
            wanted = source["secretKeyRef"]
            secret = self.objects["secrets", pod["metadata"]["namespace"], wanted["name"]]
            return base64.b64decode(secret["data"][wanted["key"]]).decode()
        path = source["fieldRef"]["fieldPath"]
        found = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if found is not None:
            return str(pod["metadata"][found[1]][found[2]])
        return str(pod["spec"]["nodeName"])

    def _waits(self, pod: Object, reason: str, message: str) -> None:
        if _container(pod, {"waiting": {"reason": reason, "message": message}}):
            self.touch("pods", pod)

    def _ended(self, pod: Object, code: int) -> None:
        _kill_container(self.processes[pod["metadata"]["uid"]])
        number = code if code >= 0 else 128 - code
        reason = "OOMKilled" if pod["metadata"]["uid"] in self.oom else "Completed" if number == 0 else "Error"
        ended = {"exitCode": number, "reason": reason, "finishedAt": now()}
        pod["status"]["phase"] = "Succeeded" if number == 0 else "Failed"
        _container(pod, {"terminated": ended})
        self.touch("pods", pod)


def metadata_name(each: Object) -> str:
    return str(each["metadata"]["name"])


def _pod_of(job: Object, name: str, uid: str, index: str) -> Object:
    template = copy.deepcopy(job["spec"]["template"])
    labels = {
        **template.get("metadata", {}).get("labels", {}), "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name, INDEX: index,
    }  # fmt: skip
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    return {
        "metadata": {
            "name": f"{name}-{index}-{uuid.uuid4().hex[:5]}", "namespace": job["metadata"]["namespace"],
            "labels": labels, "annotations": {INDEX: index}, "ownerReferences": [owner],
        },
        "spec": {**template["spec"], "hostname": f"{name}-{index}"},
        "status": {"phase": "Pending", "conditions": []},
    }  # fmt: skip


def _condition(pod: Object, kind: str, status: str, reason: str = "", message: str = "") -> bool:
    told = {"type": kind, "status": status, "reason": reason, "message": message}
    rest = [one for one in pod["status"]["conditions"] if one["type"] != kind]
    changed = told not in pod["status"]["conditions"]
    pod["status"]["conditions"] = [*rest, told]
    return changed


def _container(pod: Object, state: Object) -> bool:
    """Set the state of its one container; whether that is new."""
    (container,) = pod["spec"]["containers"]
    told = {
        "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
        "ready": "running" in state, "started": "running" in state, "state": state,
    }  # fmt: skip
    changed = pod["status"].get("containerStatuses") != [told]
    pod["status"]["containerStatuses"] = [told]
    return changed


def _requests(pod: Object) -> dict[str, float]:
    (container,) = pod["spec"]["containers"]
    return {name: _amount(text) for name, text in container["resources"].get("requests", {}).items()}


def _amount(text: str) -> float:
    units = {"m": 1e-3, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    return float(text.removesuffix(unit)) * units.get(unit, 1.0)


def _kill_container(process: subprocess.Popen[bytes]) -> None:
    """With its first process, all of a container's end."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None and process.poll() is None:
        process.kill()
        process.wait()


# --- over HTTP ---


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeCluster

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.cluster.requests.append((method, self.path))
            self._admit(method)
            found = self._discovery(parts.path.rstrip("/")) if method == "GET" else None
            if found is None:
                found = self._resource(method, parts.path, json.loads(body) if body else {})
            if found is not None and self._answer_is_lost(method):
                self.close_connection = True
            elif found is not None:
                self._send(200 if method != "POST" else 201, found)
        except Refusal as refusal:
            self._send(refusal.code, refusal.status())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _admit(self, method: str) -> None:
        if self.cluster.token and self.headers.get("Authorization") != f"Bearer {self.cluster.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        for at, (wanted, code) in enumerate(self.cluster.failures):
            if code and wanted in ("", method) and "watch" not in self.query:
                del self.cluster.failures[at]
                raise Refusal(code, _REASONS.get(code, "InternalError"), "as the test wants")

    def _answer_is_lost(self, method: str) -> bool:
        lost = (method, 0) in self.cluster.failures
        if lost:
            self.cluster.failures.remove((method, 0))
        return lost

    def _send(self, code: int, told: Object) -> None:
        data = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _discovery(self, path: str) -> Object | None:
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0-fake", "platform": "none"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        groups = ["batch", *sorted(self.cluster.groups)]
        versions = {"batch": "batch/v1", "scheduling.x-k8s.io": "scheduling.x-k8s.io/v1alpha1"}
        if path == "/apis":
            told = [{"groupVersion": versions[group], "version": versions[group].split("/")[1]} for group in groups]
            listed = [
                {"name": group, "versions": [one], "preferredVersion": one}
                for group, one in zip(groups, told, strict=True)
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        for version in ("v1", *(versions[group] for group in groups)):
            if path in (f"/api/{version}", f"/apis/{version}"):
                verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
                resources = [
                    {"name": plural, "singularName": kind.lower(), "namespaced": bound, "kind": kind, "verbs": verbs}
                    for plural, (kind, of, bound) in KINDS.items()
                    if of == version
                ]
                return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        return None

    def _resource(self, method: str, path: str, body: Object) -> Object | None:
        found = _PATH.fullmatch(path)
        plural = found["plural"] if found is not None else ""
        group = (found["group"] or "") if found is not None else ""
        served = plural in KINDS and KINDS[plural][1].rpartition("/")[0] == group
        if found is None or not served or group not in ("", "batch", *self.cluster.groups):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        namespace, name = found["namespace"] or "", found["name"] or ""
        with self.cluster.changed:
            if method == "POST":
                return self._create(plural, namespace, body)
            if not name:
                if self.query.get("watch") in ("true", "1"):
                    return self._watch(plural, namespace)
                return self._list(plural, namespace)
            each = self.cluster.objects.get((plural, namespace, name))
            if each is None:
                raise Refusal(404, "NotFound", f'{plural} "{name}" not found')
            if method == "GET":
                return each
            if method == "DELETE":
                self.cluster.delete(plural, each)
                return each
            return self._change(plural, each, body, whole=method == "PUT")

    def _create(self, plural: str, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
            raise Refusal(422, "Invalid", f'{plural} "{name}" is invalid')
        if (plural, namespace, name) in self.cluster.objects:
            raise Refusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        if "stringData" in body:
            data = {key: base64.b64encode(text.encode()).decode() for key, text in body.pop("stringData").items()}
            body["data"] = body.get("data", {}) | data
        body["metadata"]["namespace"] = namespace
        if plural == "pods":
            body.setdefault("status", {"phase": "Pending", "conditions": []})
        return self.cluster.put(plural, body)

    def _change(self, plural: str, each: Object, body: Object, *, whole: bool) -> Object:
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != each["metadata"]["resourceVersion"]:
            raise Refusal(
                409, "Conflict", "the object has been modified; please apply your changes to the latest version"
            )
        if whole:
            kept = {name: each["metadata"][name] for name in ("uid", "creationTimestamp", "name")}
            each.clear()
            each |= body
            each["metadata"] |= kept
        else:
            _merge(each, body)
        return self.cluster.touch(plural, each)

    def _wanted(self, plural: str, namespace: str, each: Object) -> bool:
        metadata = each["metadata"]
        if namespace and KINDS[plural][2] and metadata["namespace"] != namespace:
            return False
        fields = self.query.get("fieldSelector", "")
        if fields and not all(_field(each, one) for one in fields.split(",")):
            return False
        return selected(metadata.get("labels", {}), self.query.get("labelSelector", ""))

    def _list(self, plural: str, namespace: str) -> Object:
        hidden = plural in self.cluster.hidden
        self.cluster.lists += hidden
        items = [each for each in self.cluster.list(plural) if not hidden and self._wanted(plural, namespace, each)]
        kind, version, _ = KINDS[plural]
        told = {"resourceVersion": str(self.cluster.version)}
        return {"kind": f"{kind}List", "apiVersion": version, "metadata": told, "items": items}

    def _watch(self, plural: str, namespace: str) -> None:
        cluster = self.cluster
        seen = int(self.query.get("resourceVersion") or 0)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        ends_at = time.monotonic() + float(self.query.get("timeoutSeconds") or 3600)
        cut = cluster.cut
        if seen == 0:
            for each in cluster.list(plural):
                if self._wanted(plural, namespace, each):
                    self._event("ADDED", each)
            seen = cluster.version
        while cluster.cut == cut and time.monotonic() < ends_at:
            if seen < cluster.oldest:
                self._event("ERROR", Refusal(410, "Expired", f"too old resource version: {seen}").status())
                break
            for version, change, of, each in cluster.log:
                if version > seen and of == plural and self._wanted(plural, namespace, each):
                    self._event(change, each)
            seen = cluster.version
            cluster.changed.wait(min(1.0, ends_at - time.monotonic()) if ends_at > time.monotonic() else 0)
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, change: str, each: Object) -> None:
        line = json.dumps({"type": change, "object": each}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()


def _merge(each: Object, patch: Object) -> None:
    for name, value in patch.items():
        if value is None:
            each.pop(name, None)
        elif isinstance(value, dict) and isinstance(each.get(name), dict):
            _merge(each[name], value)
        else:
            each[name] = value


def _field(each: Object, condition: str) -> bool:
    path, _, wanted = condition.replace("==", "=").partition("=")
    found: Any = each
    for part in path.removesuffix("!").split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return (found != wanted) if path.endswith("!") else (found == wanted)


def selected(labels: Mapping[str, str], selector: str) -> bool:
    """`a=b,c!=d,e in (f,g),h,!i` as Kubernetes reads it."""
    for one in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        told = one.strip()
        among = re.fullmatch(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)", told)
        if among is not None:
            values = [value.strip() for value in among[3].split(",")]
            if (labels.get(among[1]) in values) != (among[2] == "in"):
                return False
        elif "!=" in told:
            name, _, value = told.partition("!=")
            if labels.get(name) == value:
                return False
        elif "=" in told:
            name, _, value = told.replace("==", "=").partition("=")
            if labels.get(name) != value:
                return False
        elif (told.removeprefix("!") in labels) == told.startswith("!"):
            return False
    return True


@contextlib.contextmanager
def fake_cluster(**options: Any) -> Iterator[tuple[FakeCluster, str]]:
    """A running one, and its address."""
    cluster = FakeCluster(**options)
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threads = [threading.Thread(target=run, daemon=True) for run in (server.serve_forever, cluster.run)]
    for thread in threads:
        thread.start()
    try:
        yield cluster, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        cluster.stop()
        server.shutdown()
        server.server_close()


def kubeconfig(url: str, token: str) -> str:
    """As text: JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": url}}],
            "users": [{"name": "tester", "user": {"token": token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "tester", "namespace": "default"}}],
        }
    )  # fmt: skip
