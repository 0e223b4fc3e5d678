"""Measuring servers: open-loop load, capacity under an objective, multi-tenant frontiers, interference and cost (after
Perseus, IC2E'20), for any server of the Open Inference Protocol.

Senses latencies from the moment requests were due; decides what to try next and when enough was seen; acts by sending
load. `planner` decides which models should share which servers. Searches take the function that measures, so that a
simulated server does too.
"""
