#!/usr/bin/env python3
"""Stands for `ssh HOST COMMAND` to a site that is not as this machine: `other` (another grep and another C library),
`floods` (sends without being asked, and announces nothing), `slow` (one small piece after another)."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from shoal.shell import proxy
from shoal.shell.source import source

kind = sys.argv[1]
rest = int(re.findall(r"\d{4,}", sys.argv[-1])[0])
while rest:
    rest -= len(sys.stdin.buffer.raw.read(rest))  # type: ignore[attr-defined]  # the proxy that was sent
proxy.SOURCE = source()
if kind == "other":
    real = proxy.fingerprint
    proxy.fingerprint = lambda path: None if path.endswith("/grep") else real(path)
    proxy.libc = lambda: "glibc 1.0"
elif kind == "floods":
    begin = proxy.RunningStage.__init__

    def unbounded(self: proxy.RunningStage, stream: int, credit: int) -> None:
        begin(self, stream, 1 << 60)

    proxy.RunningStage.__init__ = unbounded  # type: ignore[method-assign]
    proxy.OUT_LIMIT = 1 << 60
elif kind == "slow":
    send = proxy.Pipes.send
    proxy.Pipes.send = lambda self, data: send(self, data[:700])  # type: ignore[method-assign]
proxy.main([])
