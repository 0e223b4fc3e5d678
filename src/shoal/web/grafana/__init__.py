"""Dashboards for Grafana and alert rules for Prometheus, made from the names of the server's own metrics.

`shoal dashboards --out DIR` writes them. `panels` has the vocabulary, `boards` the dashboards, `alerts` the rules.
"""
