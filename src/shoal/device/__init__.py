"""One accelerator, many processes: guaranteed work runs as if it were alone, best-effort work takes the idle time.

Unmodified programs are launched with a shim in their environment. Best-effort launches wait at a gate until guaranteed
work is quiet, whole or in slices; the shims of one device share a page in memory (`native/device/page.h`).
"""
