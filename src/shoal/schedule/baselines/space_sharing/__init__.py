"""Gavel's space sharing: two jobs beside each other on one accelerator, for policies that are linear programs.

Shoal's own mechanism of rounds refuses it. The simulator replays it by Gavel's rounds, and
a policy can be asked for it.
"""
