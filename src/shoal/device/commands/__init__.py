"""The commands of shared devices."""
