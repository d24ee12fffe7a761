"""``python -m devtools.benchmarks.whole COMMAND…``: a command's cost, with all it leaves behind.

PySpark does not wait for its Java, whose CPU would be lost. Here orphaned processes come to this
process, which waits for them. The last line of its output is JSON.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

_PR_SET_CHILD_SUBREAPER = 36


class Whole(msgspec.Struct, frozen=True):
    """The cost of a command; ``wall_s`` is until the command itself has ended."""

    wall_s: float
    cpu_s: float


def run(command: Sequence[str]) -> Whole:
    """Run ``command`` to its end; it must succeed."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begun = time.perf_counter()
    subprocess.run(command, check=True)
    wall_s = time.perf_counter() - begun
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Whole(wall_s, used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    print(msgspec.json.encode(run(sys.argv[1:])).decode())
