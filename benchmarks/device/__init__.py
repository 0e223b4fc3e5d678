"""A simulated device (`simulate`), to measure how it is shared."""
