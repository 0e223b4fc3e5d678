"""The commands of `shoal guard`, found under the entry point group `shoal.commands`."""
