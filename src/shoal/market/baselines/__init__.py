"""Published systems to the letter, to compare with."""
