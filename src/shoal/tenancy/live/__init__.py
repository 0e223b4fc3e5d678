"""Planes in the shared server: which there are, which are awake, and how requests and gangs reach them."""
