"""Recurrent cells as pure expressions over one hidden unit: symbols, tracer, the cells of the literature."""
