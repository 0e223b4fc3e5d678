"""Backups by the clock, and what an upgrade would do to a home before it is done.

A backup is written whole, read back and checked, and only then counts; older ones make room for it. What is due and
what may go are pure decisions from the names and times of files.
"""
