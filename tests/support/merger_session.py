"""The session process of a merger that ends, or stops, itself at a named point: ``python -m`` this.

``MERGER_ARMED`` names a file that may appear and then holds a signal and a point of `run_plan`: at
that point the process and its Java send themselves the signal, once.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tideline_console.follow.session_process import main

ARMED = Path(os.environ["MERGER_ARMED"])


def on_point(point: str) -> None:
    try:
        number, _, name = ARMED.read_text().partition(" ")
        if name != point:
            return
        ARMED.unlink()
    except FileNotFoundError:
        return
    os.killpg(0, signal.Signals[number])


if __name__ == "__main__":
    sys.exit(main(on_point))
