"""The published policies to compare with, as `shoal.schedule.policies` has Shoal's own."""

from shoal.schedule.baselines.allox import allox
from shoal.schedule.baselines.gandiva import gandiva
from shoal.schedule.baselines.strategy_proof import strategy_proof
from shoal.schedule.policies import Policy

ALLOX = Policy("allox", allox, needs_lengths=True)
GANDIVA = Policy("gandiva", gandiva)
STRATEGY_PROOF = Policy("strategy-proof", strategy_proof, timeless=True)
