"""Whether a job received what its shares promised over the last rounds, and if not, what kept it from that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from shoal.core import Reason
from shoal.schedule.rounds.round import Round, Why
from shoal.schedule.rounds.settings import Settings
from shoal.schedule.rounds.state import WINDOW, State

KEPT = 0.9
"""A promise is kept where a job received at least this part of it."""

_CAUSES = {
    Why.BEHIND: "jobs that kept their places (for their minimum run time, or for work that they had not saved) left "
    "too little room",
    Why.RESERVED: "places were being kept free for it while others finished their minimum run time",
    Why.ROOM: "too few accelerators were left together for its gang beside those that ran",
    Why.TURN: "others had larger deficits",
    Why.NOWHERE: "no pool or quota had room for its gang",
    Why.NO_SHARE: "the policy gave it no time",
}


def noted(state: State, found: Round) -> State:
    """The state after a round, with why each job was where it was in it: for `shortfall`."""
    why = state.why.copy()
    why[:, found.number % WINDOW] = found.why
    return replace(state, why=why)


def shortfall(state: State, row: int, settings: Settings) -> Reason | None:
    """Of a job that received less than nine tenths of what was promised over the last ten rounds: what it had, and in
    how many of them what kept it waiting. None where the promise was kept, or the job was not there for so long."""
    noted = state.why[row]
    promised, received = float(state.promised_s[row].sum()), float(state.received_s[row].sum())
    if (noted < 0).any() or promised <= 0.0 or received >= KEPT * promised:
        return None
    waited = Counter(Why(int(code)) for code in noted if int(code) in _CAUSES)
    text = f"had {received:.0f} s of the {promised:.0f} s that its shares promised in the last {WINDOW} rounds"
    facts = {
        "promised_s": round(promised, 1), "received_s": round(received, 1),
        "waited": {why.name.lower().replace("_", "-"): count for why, count in waited.items()},
    }  # fmt: skip
    if not waited:
        return Reason("promise", f"{text}: its places became free late, or it had to start anew", facts)
    why, count = waited.most_common(1)[0]
    text += f": in {count} of them {_CAUSES[why]}"
    if why is Why.TURN and settings.min_run_s > settings.round_s:
        text += f" (a time slice lasts {settings.min_run_s / settings.round_s:.3g} rounds at least)"
    return Reason("promise", text, facts)
