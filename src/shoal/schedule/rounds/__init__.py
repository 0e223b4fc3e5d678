"""The round mechanism: from fractions of time to who runs where in this round, a state machine without a clock.

An allocation says which fraction of time each job should run in each column; nobody can run 0.4 of a gang. So time is
cut into rounds, and `Rounds` decides at each one who runs: those come first who are owed most (allocation over time
received), gangs start whole or not at all, what keeps its place is not restarted, and what is left over is given out.
The simulator and the control plane use this very class: they tell it which jobs there are and what they are owed
(`enter`), and ask it for the next round (`next`). Its state is plain data (`state`, `Rounds.restore`).
"""

from shoal.schedule.rounds.mechanism import Rounds
from shoal.schedule.rounds.published import Published
from shoal.schedule.rounds.round import Round, Why
from shoal.schedule.rounds.settings import Ranking, Settings
from shoal.schedule.rounds.state import JobState, State

__all__ = ["JobState", "Published", "Ranking", "Round", "Rounds", "Settings", "State", "Why"]
