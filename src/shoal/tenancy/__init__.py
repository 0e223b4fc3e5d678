"""Virtual control planes: every tenant a Shoal of its own, over one pool of machines.

A virtual control plane is an ordinary control plane whose engine is the shared one above it (VirtualCluster, ICDCS'21).
Its store, names, tokens and event log are its own. Its engine (`live/shared_engine.py`) hands gangs to the shared
plane as jobs of one tenant there, with deterministic names, and brings their states back. The shared plane delegates
nothing of its own: its quotas, shares and priorities hold for what a plane hands over, as for any other job.
"""
