"""A job's software: its manifest names a virtual environment, a conda environment, a lock file or an image.

What is on the machine already is checked and entered with the job's own rights, just before its command. What has to be
made is made once for a tenant, by a gang in the tenant's sandbox, and shown read-only to the jobs that name it. The
server itself follows none of the paths that a manifest names.
"""
