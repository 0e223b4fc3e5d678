"""Forecasts of the jobs that run here, as an extension of the server."""
