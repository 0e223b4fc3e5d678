"""A process that uses Ray for the server: requests come in as lines of JSON, answers go out as lines.

It imports nothing of ours, so that any Python with Ray can run it. What it starts in the cluster is detached: it goes
on when this process ends, which it does with the server. The job's name, `MARK/GANG@TOKEN@RANKS`, is that of its
placement group; each of its actors is called by the name and its rank's number.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_CONNECT_S = 3.0
_GUARD_WRITES_S = 1.0


class Unreachable(Exception):
    """No cluster answers."""


class RankActor:
    """Runs a rank's command in its bundle, and leaves with it. It is pickled whole: nodes need no Shoal for it."""

    def __init__(self, group: Any, job: str, rank: int, ranks: int, per_bundle: int, command: str, env: dict[str, str]):
        import ray
        from ray.util import placement_group_table, remove_placement_group

        bundles = placement_group_table(group)["bundles_to_node_id"]
        nodes = [bundles[each // per_bundle] for each in range(ranks)]
        order = list(dict.fromkeys(nodes))
        names = {node["NodeID"]: node.get("NodeName") or node["NodeManagerAddress"] for node in ray.nodes()}
        place = {
            "SHOAL_TASK_JOB": job,
            "SHOAL_TASK_RANK": str(rank),
            "SHOAL_TASK_NODE_INDEX": str(order.index(nodes[rank])),
            "SHOAL_TASK_LOCAL": str(nodes[:rank].count(nodes[rank])),
            "SHOAL_TASKS_PER_NODE": ",".join(str(nodes.count(node)) for node in order),
            "SHOAL_TASK_NODE": names[nodes[rank]],
        }
        gpus = ",".join(str(each) for each in ray.get_gpu_ids())
        # Started by this thread, the process's first: the rank is told when it ends.
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL,
            env={**os.environ, **env, **place, "CUDA_VISIBLE_DEVICES": gpus},
        )  # fmt: skip

        def follow() -> None:
            if process.wait() < 0:
                time.sleep(_GUARD_WRITES_S)  # its supervisor was killed: the guard is about to put that on record
            if ranks == 1:
                remove_placement_group(group)  # the group is free though no server is there
            os._exit(0)

        threading.Thread(target=follow, daemon=True).start()


class Server:
    def __init__(self, address: str, namespace: str) -> None:
        self.address = address
        self.namespace = namespace

    def connect(self) -> None:
        self.reach()
        import ray

        sys.argv = ["/shoal"]  # Ray gives its folder to workers as one of modules
        try:
            ray.init(
                address=self.address, namespace=self.namespace, log_to_driver=False, configure_logging=False,
                ignore_reinit_error=True,
            )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError) as problem:
            raise Unreachable(f"the cluster at {self.address} cannot be joined: {_first_line(problem)}") from problem

    def about(self) -> dict[str, str]:
        import ray

        return {"version": ray.__version__, "address": self.address}

    def reach(self) -> None:
        """Raise Unreachable at once where nothing answers: Ray itself would wait and try again."""
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        except (OSError, ValueError) as problem:
            told = getattr(problem, "strerror", None) or problem
            raise Unreachable(f"no Ray cluster answers at {self.address}: {told}") from problem

    def nodes(self) -> list[dict[str, Any]]:
        import ray

        return [
            {
                "id": node["NodeID"], "name": node.get("NodeName") or node["NodeManagerAddress"],
                "address": node["NodeManagerAddress"], "resources": node["Resources"],
                "labels": node.get("Labels") or {},
            }
            for node in ray.nodes() if node["Alive"]
        ]  # fmt: skip

    def jobs(self, mark: str) -> dict[str, Any]:
        """All jobs with this mark: the state of each one's group, and which of its ranks have an actor. `alive` are the
        names of the nodes that were there after that, so that an actor is known to have gone with its node."""
        from ray.util import placement_group_table

        # Groups first: an actor is never there before its group.
        return self._seen([each for each in placement_group_table().values() if each["name"].startswith(f"{mark}/")])

    def find(self, job: str) -> dict[str, Any]:
        """The same of one job, asked for by its name."""
        from ray.util import get_placement_group, placement_group_table

        try:
            return self._seen([placement_group_table(get_placement_group(job))])
        except ValueError:
            return self._seen([])

    def _seen(self, groups: list[dict[str, Any]]) -> dict[str, Any]:
        from ray.util import list_named_actors

        actors: dict[str, list[int]] = {}
        for name in list_named_actors():
            job, _, rank = str(name).rpartition("#")
            actors.setdefault(job, []).append(int(rank))
        found = [
            {
                "id": group["name"], "state": group["state"],
                "actors": sorted({*listed, *self._unlisted(group["name"], group["state"], listed)}),
                "reason": (group.get("stats") or {}).get("scheduling_state", ""),
            }
            for group in groups
            for listed in [actors.get(group["name"], [])]
        ]  # fmt: skip
        return {"jobs": found, "alive": [node["name"] for node in self.nodes()]}

    def _unlisted(self, job: str, state: str, listed: list[int]) -> list[int]:
        """Ranks whose actor is not in the list and is there all the same when it is asked for by its name."""
        import ray

        found = []
        for rank in set(range(int(job.rpartition("@")[2]))) - set(listed) if state == "CREATED" else ():
            with contextlib.suppress(ValueError):
                ray.get_actor(f"{job}#{rank}")
                found.append(rank)
        return found

    def submit(
        self, job: str, ranks: int, per_bundle: int, spread: bool, needs: dict[str, float], gpus: float,
        command: str, env: dict[str, str],
    ) -> str:  # fmt: skip
        import ray
        from ray.util import get_placement_group, placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = {name: amount * per_bundle for name, amount in needs.items()}
        try:
            group = get_placement_group(job)
        except ValueError:
            group = placement_group(
                [dict(bundle) for _ in range(ranks // per_bundle)], strategy="STRICT_SPREAD" if spread else "PACK",
                name=job, lifetime="detached",
            )  # fmt: skip
        there = set(self._actors_of(job))
        actor = ray.remote(RankActor)
        for rank in range(ranks):
            if rank not in there:
                strategy = PlacementGroupSchedulingStrategy(group, rank // per_bundle, False)
                actor.options(
                    name=f"{job}#{rank}", lifetime="detached", max_restarts=0, num_cpus=0, num_gpus=gpus,
                    scheduling_strategy=strategy,
                ).remote(group, job, rank, ranks, per_bundle, command, env)  # fmt: skip
        return job

    def _actors_of(self, job: str) -> list[int]:
        from ray.util import list_named_actors

        return [int(name.rpartition("#")[2]) for name in list_named_actors() if name.rpartition("#")[0] == job]

    def cancel(self, job: str) -> None:
        """Removing a group ends its actors, and its ranks with them."""
        import ray
        from ray.util import get_placement_group, remove_placement_group

        with contextlib.suppress(ValueError):  # it is gone
            remove_placement_group(get_placement_group(job))
        for rank in self._actors_of(job):  # those that wait for it
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(f"{job}#{rank}"))


def _first_line(problem: BaseException) -> str:
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)


def address_of(told: str) -> str:
    """The address of the cluster that is meant. Raises Unreachable where there is none."""
    found = told or os.environ.get("RAY_ADDRESS", "")
    if found in ("", "auto"):
        try:
            found = (
                (Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray/ray_current_cluster")
                .read_text()
                .strip()
            )
        except OSError:
            raise Unreachable("this machine is part of no Ray cluster") from None
    return found


def main() -> None:
    os.closerange(3, 65536)  # the server's event loop passes its inheritable ones on
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints
    server: Server | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if server is None:
                server = Server(address_of(sys.argv[1]), sys.argv[2])
                server.connect()
            server.reach()
            answer = {"answer": getattr(server, request.pop("do"))(**request)}
        except ImportError as problem:
            answer = {"unavailable": f"Ray is not installed: {problem}"}
        except Unreachable as problem:
            answer = {"unavailable": str(problem)}
        except Exception as problem:
            answer = {"refused": f"{type(problem).__name__}: {_first_line(problem)}"}
        answers.write(json.dumps(answer) + "\n")
        if "unavailable" in answer:
            break
    answers.flush()
    os._exit(0)  # what is detached goes on


if __name__ == "__main__":
    main()
