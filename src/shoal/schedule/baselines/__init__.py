"""Other systems' schedulers, to compare with: AlloX and Gandiva as policies, Gavel's rounds and accounting."""
