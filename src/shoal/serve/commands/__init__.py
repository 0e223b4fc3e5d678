"""`shoal serve` and the commands for services."""
