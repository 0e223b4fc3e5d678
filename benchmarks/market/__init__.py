"""Instruments of the benchmarks of renting."""
