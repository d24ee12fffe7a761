"""``python -m console.services.prepare``: fetch what the machine lacks, once.

Java (when there is none that Spark can use), Delta's jars and, where root starts PostgreSQL as
another user, a copy of its binaries that this user can reach. Says nothing when all is there.
"""

from __future__ import annotations

import sys

from console.services.jars import delta_jars, jars_folder
from console.services.java import ensure_java, find_java
from console.services.postgres import binaries
from console.services.process import unprivileged_account
from tideline.contract.errors import TidelineError


def prepare() -> None:
    """Raises Misconfigured or Unavailable, with what the operator can do."""
    if find_java() is None:
        print("setup: Java, this takes a minute", flush=True)
    ensure_java()
    if not jars_folder().is_dir():
        print("setup: Delta's jars", flush=True)
    delta_jars()
    binaries(unprivileged_account())


def main() -> int:
    """The exit code: 0, or 1 after saying on standard error what is missing."""
    try:
        prepare()
    except TidelineError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
