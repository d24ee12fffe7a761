"""One target under atheris, in a process of its own: ``python -m tests.fuzz.one NAME FOLDER ARGS…``

What the target's rule calls a finding is written into the folder, once for each line that raises,
and the run goes on; a hang and a process that grows end it, as libFuzzer does, with the input in
the folder too. ``ARGS`` are libFuzzer's: its corpus folders, ``-max_total_time=…``.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tideline_capture", "tideline"]):
    from tests.fuzz.target import Target, signature
    from tests.fuzz.targets import TARGETS

FINDING = "finding-"


class Findings:
    """The findings of a target in ``folder``: for each the input, and beside it the traceback."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._known = {
            path.read_text().partition("\n")[0] for path in folder.glob(f"{FINDING}*.txt")
        }

    def look(self, data: bytes) -> None:
        """Run the target on ``data``; keep what is wrong and was not found before."""
        error = self._target.check(data)
        if error is None:
            return
        named = signature(error)
        if named in self._known:
            return
        self._known.add(named)
        name = FINDING + hashlib.sha256(named.encode()).hexdigest()[:12]
        (self._folder / name).write_bytes(data)
        reported = "".join(traceback.format_exception(error))
        (self._folder / f"{name}.txt").write_text(f"{named}\n\n{reported}")


def main() -> None:
    name, folder, *arguments = sys.argv[1:]
    findings = Findings(TARGETS[name], Path(folder))
    atheris.Setup([sys.argv[0], *arguments], findings.look)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
