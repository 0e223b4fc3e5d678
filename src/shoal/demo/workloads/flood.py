"""A neighbour that clears 256 MiB again and again on the CPU it is given: stores that go past the caches to memory."""

import ctypes
import os
import sys

from shoal.base.processes import end_with_parent

end_with_parent(os.getppid())
os.sched_setaffinity(0, {int(sys.argv[1])})
memory = ctypes.create_string_buffer(256 << 20)
while True:
    ctypes.memset(memory, 0, len(memory))
