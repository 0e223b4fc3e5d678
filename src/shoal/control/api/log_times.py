"""Times of a log's lines, from the sizes that it had at known times."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from io import BytesIO

from shoal.engine import LogTimes


def offset_since(times: LogTimes, since: float) -> int:
    """Where what was written after that time begins, or a little before: no line of it is missed."""
    before = bisect_right(times, since, key=lambda entry: entry[1])
    return times[before - 1][0] if before else 0


def stamp(data: bytes, offset: int, times: LogTimes, *, fresh: bool) -> bytes:
    """The data, each line behind the time when it began, in UTC. `fresh`: whether the data begins with a line. Of an
    engine that knows no times, the data as it is."""
    if not times:
        return data
    sizes = [size for size, _ in times]
    told: dict[int, bytes] = {}
    stamped = []
    for line in BytesIO(data):
        if fresh:
            at = min(bisect_left(sizes, offset + 1), len(sizes) - 1)
            if at not in told:
                told[at] = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime(times[at][1])).encode()
            stamped.append(told[at])
        stamped.append(line)
        offset += len(line)
        fresh = line.endswith(b"\n")
    return b"".join(stamped)
