"""Shoal attacked as one of its tenants: one table of attacks, run from within real jobs and judged from outside."""
