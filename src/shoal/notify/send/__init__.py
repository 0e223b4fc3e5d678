"""Ways to receivers: each tries one delivery once, within its time, and says how that went."""
