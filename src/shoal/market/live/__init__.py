"""Instances rented for jobs: a provider, durable records, a ledger with caps, and the loop that holds them together."""
