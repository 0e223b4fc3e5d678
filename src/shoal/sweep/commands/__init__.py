"""The commands of sweeps after `shoal`."""
