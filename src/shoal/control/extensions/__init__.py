"""The components that are on: what each adds, how their decisions unite, and the loops they run."""
