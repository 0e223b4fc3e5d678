"""Sessions: being in a job, at a terminal, by a command, through a port.

An agent in the job (`agent`) owns each terminal and what it wrote last; the server (`live`) checks the caller's rights
and passes bytes through one upgraded connection; the client (`client`) comes back to the same byte after a broken
connection or a restart of the server. What runs in a session has the job's rights, limits and namespaces. Ports are
forwarded where the kernel proves that the job listens there.
"""
