"""A session process without Spark, for tests of its supervisor: ``python -m`` this.

What it does is in files of the folder that ``STUB_SESSION`` names: it appends a line to ``begun``
with its process id, writes each plan that it is given to ``given``, says that it runs the plans in
``plans`` and has ended those in ``ended``, answers while there is no file ``hangs``, and reports
``memory`` bytes. Like the real one it ends when standard input does.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import msgspec

from tideline_console.follow.messages import EXIT_SICK, Beat, LineBuffer, Order, line

FOLDER = Path(os.environ["STUB_SESSION"])


def main() -> None:
    pipe = int(sys.argv[sys.argv.index("--beats") + 1])
    with (FOLDER / "begun").open("a") as file:
        file.write(f"{os.getpid()}\n")
    threading.Thread(target=_beats, args=(pipe,), daemon=True).start()
    lines = LineBuffer()
    while data := os.read(0, 65_536):
        for raw in lines.feed(data):
            order = msgspec.json.decode(raw, type=Order)
            with (FOLDER / "given").open("a") as file:
                file.write("".join(f"{plan}\n" for plan in order.run))
            if order.stop:
                (FOLDER / "stopped").touch()
                os._exit(0)
    os._exit(EXIT_SICK)


def _beats(pipe: int) -> None:
    reported: set[str] = set()
    while True:
        if not (FOLDER / "hangs").exists():
            ended = [plan for plan in lines_of("ended") if plan not in reported]
            reported.update(ended)
            memory = int("".join(lines_of("memory")) or 0)
            beat = Beat(plans=tuple(lines_of("plans")), ended=tuple(ended), memory_bytes=memory)
            os.write(pipe, line(beat))
        time.sleep(0.05)


def lines_of(name: str) -> list[str]:
    path = FOLDER / name
    return path.read_text().split() if path.exists() else []


if __name__ == "__main__":
    main()
