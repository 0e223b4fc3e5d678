"""Published baselines: loaded only when it is asked for."""
