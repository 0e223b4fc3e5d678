"""The nodes on which jobs of one affinity may run, and which of them come first. Pure.

They are worked out once for each affinity and each set of nodes. A search leaves out the others at the cost of a look
into a set, and at none for jobs that may run anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from shoal.admission.types import NodeKind
from shoal.core import OWN_PREFIX, Affinity, Effect, Node, match

MOST_TIERS = 16
"""The maximum number of steps of preference that a search tries; nodes that are worth less than those are equal."""


class Sites:
    """Some of the nodes, by position. Compared by identity: there is one for each affinity.

    `tiers` are the sets of nodes to try before all of them: the best first, each with the one before in it. `seconds`
    is what nodes are worth, `avoided` those that are used only where nothing else fits. `words` says which nodes these
    are, with a space before; `facts` says it in data.
    """

    __slots__ = ("at", "avoided", "facts", "kinds", "seconds", "tiers", "words")

    def __init__(
        self, at: frozenset[int], kinds: Mapping[NodeKind, int], seconds: Mapping[int, float],
        avoided: frozenset[int] = frozenset(), words: str = "", facts: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        self.at = at
        self.kinds = kinds
        self.seconds = seconds
        self.avoided = avoided
        self.words = words
        self.facts = facts or {}
        self.tiers = tuple(self._part(each) for each in tiers(at, seconds, avoided))

    def _part(self, at: frozenset[int]) -> Sites:
        return Sites(at, self.kinds, {}, words=self.words, facts=self.facts)

    def worth(self, saved: Mapping[int, float]) -> tuple[Sites, ...]:
        """The tiers with what else nodes are worth to one job, by position."""
        both = {at: self.seconds.get(at, 0.0) + saved.get(at, 0.0) for at in {**self.seconds, **saved}}
        return tuple(self._part(each) for each in tiers(self.at, both, self.avoided))


def tiers(at: frozenset[int], seconds: Mapping[int, float], avoided: frozenset[int]) -> list[frozenset[int]]:
    """Sets of nodes, each with the one before in it, the best first: none where all nodes are equal."""
    wanted = sorted({worth for each, worth in seconds.items() if worth > 0 and each in at and each not in avoided})
    found: list[frozenset[int]] = []
    chosen: frozenset[int] = frozenset()
    for worth in reversed(wanted[-MOST_TIERS:]):
        chosen |= {each for each, other in seconds.items() if other == worth and each in at and each not in avoided}
        found.append(chosen)
    if avoided & at and at - avoided:
        found.append(at - avoided)
    return [each for each in dict.fromkeys(found) if len(each) < len(at)]


def sites_of(nodes: Sequence[Node], kinds: Sequence[NodeKind], affinity: Affinity) -> Sites | None:
    """Where jobs of this affinity may run; None: anywhere, and no node comes before another."""
    at = frozenset(
        n for n, node in enumerate(nodes)
        if node.name not in affinity.off and affinity.allows(node.labels, node.taints)
    )  # fmt: skip
    seconds = {n: worth for n in sorted(at) if (worth := affinity.seconds_saved(nodes[n].labels)) > 0}
    avoided = frozenset(n for n in at if affinity.intolerable(nodes[n].taints, Effect.PREFER_NO_SCHEDULE))
    if len(at) == len(nodes) and not seconds and not avoided:
        return None
    kept: Counter[NodeKind] = Counter(kinds[n] for n in at)
    words, facts = _told(nodes, affinity, at) if len(at) < len(nodes) else ("", {})
    return Sites(at, kept, seconds, avoided, words, facts)


def _told(nodes: Sequence[Node], affinity: Affinity, at: frozenset[int]) -> tuple[str, dict[str, object]]:
    asked = " and ".join(f"{name}={'|'.join(values)}" for name, values in affinity.require)
    kept_off = _taints(nodes, affinity)
    require = {name: list(values) for name, values in affinity.require}
    facts: dict[str, object] = {
        "nodes": {"allowed": len(at), "of": len(nodes), "require": require, "taints": kept_off}
    }  # fmt: skip
    parts = [f"with {asked}"] if asked else []
    parts += [f"without taint {' or '.join(kept_off[:2])}"] if kept_off else []
    named = f" {' and '.join(parts)}" if parts else ""
    return f"{named} ({len(at)} of {len(nodes)} nodes)", facts


def _taints(nodes: Iterable[Node], affinity: Affinity) -> list[str]:
    """The taints that keep the job off nodes which have all that it requires. The server's own may name others' jobs:
    of these the label is enough."""
    found: dict[str, None] = {}
    for node in nodes:
        if node.taints and match(affinity.require, node.labels):
            for taint in affinity.intolerable(node.taints, Effect.NO_SCHEDULE, Effect.NO_EXECUTE):
                found[taint.label if taint.label.startswith(OWN_PREFIX) else str(taint)] = None
    return list(found)
