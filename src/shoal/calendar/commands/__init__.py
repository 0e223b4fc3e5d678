"""The calendar's commands after `shoal`."""
