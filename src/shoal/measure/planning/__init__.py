"""From profiles to a plan: which models share which accelerators, and how many are needed."""
