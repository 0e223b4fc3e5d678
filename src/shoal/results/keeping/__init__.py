"""Artifacts: files of jobs that are kept by their content, as long as a tenant's room and the retention allow."""
