"""Whole sequences as requests, worked on step by step: a short one joins and leaves while a long one goes on.

Cellular batching, after BatchMaker (EuroSys'18): every step takes the next frame of each request that is here, as one
batch of the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shoal.core import ShoalError
from shoal.inference import Array, BadRequest
from shoal.recurrent.errors import BadInput
from shoal.recurrent.network.network import Network
from shoal.recurrent.network.sessions import Session


@dataclass(slots=True)
class _Joined:
    """`x`: [steps, 1, elements]. `made`: the outputs of each step so far."""

    session: Session
    x: Array
    made: list[Mapping[str, Array]] = field(default_factory=list)


class Sequences:
    """The requests that are here now, by number. For a network that is recurrent through and through."""

    def __init__(self, net: Network) -> None:
        self._net = net
        with net.session() as first:
            if not first.stacked:
                raise BadInput("sequences join between steps only where all of the network is recurrent")
        self._x = net.graph.recurrences[0].x
        self._last = {name for one in net.graph.recurrences for name in one.final.values() if name}
        self._here: dict[int, _Joined] = {}

    def join(self, requests: Mapping[int, Array]) -> None:
        """Add requests, each [steps, 1, elements]. Raises BadRequest, and then none has joined."""
        made: dict[int, _Joined] = {}
        try:
            for number, x in requests.items():
                self._net.checked_inputs({self._x: x}, self._net.graph.pairs)
                if x.shape[1] != 1 or not len(x):
                    raise BadInput(f"a request is one sequence of at least one step, not {list(x.shape)}")
                made[number] = _Joined(self._net.session(), np.array(x))
        except ShoalError as error:
            for one in made.values():
                one.session.close()
            raise BadRequest(error.what, where=error.where, hint=error.hint) from error
        self._here |= made

    def step(self) -> dict[int, dict[str, Array]]:
        """One step of all; the outputs of those that it finished."""
        here = self._here
        frames = [{self._x: one.x[len(one.made)][None]} for one in here.values()]
        for one, outputs in zip(here.values(), self._net.step([o.session for o in here.values()], frames), strict=True):
            one.made.append(outputs)
        done = [number for number, one in here.items() if len(one.made) == len(one.x)]
        found = {number: self._outputs(here[number]) for number in done}
        for number in done:
            self.leave(number)
        return found

    def _outputs(self, one: _Joined) -> dict[str, Array]:
        """Last states as they are, outputs of steps one after the other."""
        return {
            name: value if name in self._last else np.concatenate([each[name] for each in one.made])
            for name, value in one.made[-1].items()
        }

    def leave(self, number: int) -> None:
        """Drop a request. Unknown numbers are passed over."""
        one = self._here.pop(number, None)
        if one is not None:
            one.session.close()
