"""Other systems' schedulers, written down to compare with: nothing here runs live."""
