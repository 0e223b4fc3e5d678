"""Policies: from what was seen so far to what to rent now, with the reason. They read no clock, file or network."""
