"""The round mechanism: from fractions of time to who runs where in this round, without a clock.

An allocation says which fraction of time each job should run in each column; 0.4 of a gang cannot run. So time is
cut into rounds. `next_round` is a pure function from what was remembered (`State`, plain data), what really runs and
the shares to who runs now and what to remember: those with the largest deficits come first, gangs start whole or not at
all, what keeps its place is not restarted, and what is left over is given out. The simulator and the control plane call
this very function.
"""

from shoal.schedule.rounds.next_round import next_round, settled
from shoal.schedule.rounds.promise import noted, shortfall
from shoal.schedule.rounds.round import Round, Why
from shoal.schedule.rounds.settings import Settings
from shoal.schedule.rounds.state import WINDOW, State

__all__ = ["WINDOW", "Round", "Settings", "State", "Why", "next_round", "noted", "settled", "shortfall"]
