"""Questions between components. A question is a protocol; an extension answers it with an object that has its methods,
and the caller (of `server.ask`, `server.ask_all`) knows the protocol alone.

A new question is a new protocol, here or in the package that asks it. Jobs are named by their ids; a job that is over
has no answers. Unless a protocol says otherwise, answers are given on the server's event loop, in microseconds, from
what is known already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from shoal.core.prediction import Estimate
from shoal.core.reason import Reason
from shoal.core.resources import Node, Resources

P = TypeVar("P")
T = TypeVar("T")


class FinishTimes(Protocol):
    """When running jobs end."""

    def finish_at(self, job_id: str, progress: Mapping[str, Any]) -> Estimate | None:
        """In Unix time, from what the job reported just now. The server asks once for each report, before the report is
        kept; the answer is kept with it."""
        ...


class Telemetry(Protocol):
    """Where the speed of a job can be read, better than in its own reports."""

    def telemetry(self, job_id: str) -> Mapping[str, Any] | None:
        """A source as the guard's configuration names one."""
        ...


class Sensors(Protocol):
    """What running jobs use of the machines' resources. The answers of several sensors are united."""

    def sensed(self, job_id: str) -> Mapping[str, float]:
        """Readings by the names of sensors; what is not known is left out. Asked at each report of the job."""
        ...


class DeviceUse(Protocol):
    """Whether jobs work on devices that they share."""

    def uses_device(self, job_id: str) -> bool | None:
        """Whether the job had work done on a shared device since a little while ago; None where that is not known.
        A component that asks does so every few seconds: only devices that are asked about are looked at."""
        ...


class KillCauses(Protocol):
    """Why the processes of jobs were killed."""

    def kill_cause(self, job_id: str) -> str | None:
        """A sentence, if the component that answers had the present attempt's processes killed. Asked once the attempt
        has ended."""
        ...


class NeededBundles(Protocol):
    """Archives of working files that are needed, beside those that jobs name."""

    def needed_bundles(self) -> Iterable[tuple[str, str]]:
        """The (tenant, digest) of each. Nothing is removed while this raises."""
        ...


class NodeOffers(Protocol):
    """What jobs may be given of the nodes that the engine has. Each answer changes the one before."""

    def offered(self, node: Node) -> Node:
        """The node with what is offered on it, such as places for best-effort jobs on its devices."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tenant may use up, such as `dollars for instances`: `used` of `limit`, in `unit`."""

    tenant: str
    what: str
    used: float
    limit: float
    unit: str


class Budgets(Protocol):
    """What tenants may use up, and how much of it they have."""

    def budgets(self) -> Iterable[Budget]:
        """Asked a few times a minute, in a thread: it may read the database."""
        ...


@dataclass(frozen=True, slots=True)
class Miss:
    """A service of a tenant misses its objective; `text` says by how much."""

    tenant: str
    service: str
    text: str


class Objectives(Protocol):
    """Which services miss their objectives."""

    def missed(self) -> Iterable[Miss]:
        """Now, or in the last minute. Asked every few seconds."""
        ...


class NodesToCome(Protocol):
    """Nodes that come for jobs which ask for them: what no node has today may be there then."""

    def obstacles(self, sections: Mapping[str, Any], resources: Resources, ranks: int) -> Sequence[Reason] | None:
        """None where nodes do not come for jobs with these sections under `extensions` of their manifests. Else why
        none can that holds this number of ranks; empty if they can. Asked at each submission of a job."""
        ...


def first(answers: Iterable[P], ask: Callable[[P], T | None]) -> T | None:
    """The first answer that is not None."""
    return next((found for one in answers if (found := ask(one)) is not None), None)
