"""Keeps the whole texts of Spark's failures where an operator asks for them.

They can hold row values, so that neither Spark nor Tideline logs them. `VARIABLE`, in the
environment of the process that drives Spark (a command, a merger, a task of Airflow), names a file
to which each is appended, readable by its owner alone; ``-`` is standard error.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

VARIABLE = "TIDELINE_SPARK_ERRORS"
HINT = f"{VARIABLE}=/path/of/a/file keeps Spark's whole message there, which can hold row values"
_STANDARD_ERROR = "-"


def keep_text(error: Exception, doing: str) -> None:
    """Write the text of a failure while ``doing`` something, with its stack in Java, to where
    `VARIABLE` says. A file that cannot be written is named on stderr. Raises nothing."""
    place = os.environ.get(VARIABLE)
    if not place:
        return
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    text = f"{moment} while {doing}: {type(error).__name__}\n{_whole(error)}\n\n"
    if place == _STANDARD_ERROR:
        sys.stderr.write(text)
        return
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as problem:
        sys.stderr.write(f"{VARIABLE}: {place} cannot be written: {problem.strerror}\n")


def _whole(error: Exception) -> str:
    """Return the text and, of an exception that PySpark has converted, its stack in Java, which it
    leaves out of the text."""
    stack = getattr(error, "_stackTrace", None)
    return f"{error}\n{stack}" if isinstance(stack, str) else str(error)
