"""Published baselines: AlloX, Gandiva and a strategy-proof mechanism as policies, Gavel's rounds,
solver and accounting, and its space sharing. What runs in a server loads none of it before it is asked for by name."""
