"""Checks whether the pipeline's merger merges: ``python -m tideline_console.follow.health``.

For the health check of a container: it asks Redis, and nothing else. A merger that waits to take
over is as healthy as the one that merges. Exit status: 0, or 1 with a line that says why.
"""

from __future__ import annotations

import sys
from contextlib import closing

from tideline.contract.errors import TidelineError
from tideline.control.merger import LEASE_S, MergerClient, MergerStatus
from tideline.settings import load_settings


def problem(status: MergerStatus | None) -> str | None:
    """Return what keeps the merger from merging; None where it merges."""
    if status is None:
        return f"no merger of this pipeline has reported for {LEASE_S:g} s"
    if status.state == "merging":
        return None
    why = "" if status.reason is None else f": the last one was replaced because {status.reason}"
    return f"the merger on {status.host} has no Spark session yet{why}"


def main() -> int:
    """Run as the program's entry point; return its exit status."""
    try:
        settings = load_settings(None)
        with closing(MergerClient(settings.control, settings.pipeline)) as client:
            found = problem(client.status())
    except TidelineError as error:
        found = error.message
    if found is not None:
        print(found)
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
