"""A job's attempts: what they need fetched and staged, launched, watched, collected, taken over after a restart."""
