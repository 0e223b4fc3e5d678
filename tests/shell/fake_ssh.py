#!/usr/bin/env python3
"""Stands for `ssh HOST COMMAND`: runs the command on this machine, over a link with a delay (SHOAL_TEST_DELAY_MS, each
way) that ends after so many bytes from over there (SHOAL_TEST_CUT_AT), or stands still after them
(SHOAL_TEST_STALL_AT, and `:SECONDS` where it then goes on)."""

import os
import subprocess
import sys
import threading
import time
from collections import deque


def carry(source, target, delay_s, cut_at=None, stall_at=None, ended=lambda: None):
    """Bytes from one file to another, each `delay_s` later."""
    queue, ready, count = deque(), threading.Condition(), 0

    def read():
        while True:
            data = os.read(source, 1 << 16)
            with ready:
                queue.append((time.monotonic() + delay_s, data))
                ready.notify()
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while True:
        with ready:
            while not queue:
                ready.wait()
            due, data = queue.popleft()
        time.sleep(max(0.0, due - time.monotonic()))
        if cut_at is not None and count + len(data) >= cut_at:
            data = data[: cut_at - count]
            if data:
                os.write(target, data)
            ended()
            return
        if stall_at is not None and count + len(data) >= stall_at[0]:
            time.sleep(stall_at[1])
            stall_at = None
        if not data:
            os.close(target)
            return
        count += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]


def main():
    command = sys.argv[-1]
    delay_s = float(os.environ.get("SHOAL_TEST_DELAY_MS", "0")) / 1e3
    cut, stall = os.environ.get("SHOAL_TEST_CUT_AT"), os.environ.get("SHOAL_TEST_STALL_AT")
    if not delay_s and cut is None and stall is None:
        os.execv("/bin/sh", ["sh", "-c", command])
    at, _, seconds = (stall or "").partition(":")
    child = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end():
        os._exit(255)

    back = threading.Thread(
        target=carry,
        daemon=True,
        args=(
            child.stdout.fileno(),
            1,
            delay_s,
            cut and int(cut),
            (int(at), float(seconds or 3600)) if at else None,
            end,
        ),
    )
    back.start()
    threading.Thread(target=carry, daemon=True, args=(0, child.stdin.fileno(), delay_s)).start()
    back.join()
    os._exit(child.wait())


main()
