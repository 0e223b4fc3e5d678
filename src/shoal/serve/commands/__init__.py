"""`shoal serve` and the commands for services, found under the entry point group `shoal.commands`."""
