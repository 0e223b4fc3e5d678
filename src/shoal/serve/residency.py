"""Choice of the loaded models that make room for another one: a pure choice between what is cheap to bring back and
what is used.

`gdsf` is Greedy-Dual-Size-Frequency (Cherkasova, 1998): a model is worth its uses times its load time per byte, on top
of what the cache had to give up last when it was used. So what was popular long ago is overtaken by what is used now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model. `age` is the cache's inflation when it was used last."""

    key: str
    bytes: int
    load_s: float
    uses: int = 0
    age: float = 0.0


def worth(model: Resident) -> float:
    """GDSF's priority."""
    return model.age + max(1, model.uses) * model.load_s / max(1, model.bytes)


def make_room(
    residents: Sequence[Resident], wanted_bytes: int, budget_bytes: int, waited_for: Set[str] = frozenset()
) -> tuple[str, ...]:
    """The keys of those to evict so that `wanted_bytes` more fit, least worth first; none if they fit already. Models
    that are `waited_for` go only where the others are not enough. One that is larger than the whole budget may be
    loaded alone: its owner chose to deploy it."""
    over = sum(model.bytes for model in residents) + wanted_bytes - budget_bytes
    evicted: list[Resident] = []
    for model in sorted(residents, key=lambda model: (model.key in waited_for, worth(model), model.key)):
        if over <= 0:
            break
        evicted.append(model)
        over -= model.bytes
    kept: set[str] = set()
    for model in reversed(evicted):  # a large one may have made the small ones before it needless
        if over + model.bytes <= 0:
            over += model.bytes
            kept.add(model.key)
    return tuple(model.key for model in evicted if model.key not in kept)


class ModelCache:
    """What one replica has loaded, and how it was used; by keys of the caller's choice.

    `inflation` is the greatest worth that was ever evicted from it.
    """

    def __init__(self) -> None:
        self.inflation = 0.0
        self._residents: dict[str, Resident] = {}

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._residents.values())

    def __contains__(self, key: str) -> bool:
        return key in self._residents

    @property
    def bytes(self) -> int:
        return sum(model.bytes for model in self)

    def put(self, key: str, size: int, load_s: float) -> None:
        """It was loaded, in the place of one with this key if there is one, and takes `size` bytes."""
        self._residents[key] = Resident(key, size, load_s, age=self.inflation)

    def use(self, key: str, times: int = 1) -> None:
        """Nothing for one that is not there any more."""
        model = self._residents.get(key)
        if model is not None:
            self._residents[key] = replace(model, uses=model.uses + times, age=self.inflation)

    def take(self, key: str) -> None:
        """It was unloaded because it is no longer wanted."""
        self._residents.pop(key, None)

    def evict(self, key: str) -> None:
        """It was unloaded to make room: from now on a use is worth more than what was given up for it."""
        model = self._residents.pop(key, None)
        if model is not None:
            self.inflation = max(self.inflation, worth(model))
