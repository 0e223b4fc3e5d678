"""Commands after `shoal`."""
