"""Changes of the machine that can be taken back: each is written ahead to a log, and a watchdog undoes what is left."""
