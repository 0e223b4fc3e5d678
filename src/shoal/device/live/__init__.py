"""Shared devices in the server: places on devices, and a seat for each process of a job that has a share."""
