"""The commands of `shoal forecast`, found under the entry point group `shoal.commands`."""
