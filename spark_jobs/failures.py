"""Spark's exceptions, told apart by name only: their messages can hold row values.

What leaves this module is an exception's class and condition (``[CAST_OVERFLOW]``), never its text.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tideline.contract.errors import CorruptData, TidelineError, Unavailable

SparkFailure = (Py4JJavaError, PySparkException)
"""What a call into Spark raises; catch this, then ask `is_conflict` or `explain`."""

_CONFLICTS = (
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
    # Two runs took the same schema step.
    "FIELD_ALREADY_EXISTS",
    "FIELDS_ALREADY_EXISTS",
    "DELTA_DUPLICATE_COLUMNS_FOUND",
)
_UNREADABLE = (
    "PATH_NOT_FOUND",
    "FAILED_READ_FILE",
    "CANNOT_READ_FILE_FOOTER",
    "FileNotFoundException",
    "is not a Parquet file",
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_CLASS = re.compile(r"\b(?:[a-z][\w$]*\.)+([A-Z]\w*(?:Exception|Error))\b")
_NAMES_MAX = 4


def is_conflict(error: Exception) -> bool:
    """Whether another writer of the table was faster, so that the run may read it again."""
    text = str(error)
    return any(name in text for name in _CONFLICTS)


def explain(error: Exception, doing: str) -> TidelineError:
    """One of our six errors for a failure of Spark while ``doing`` something."""
    text = str(error)
    names = ", ".join(_names(text)) or type(error).__name__
    if any(name in text for name in _UNREADABLE):
        return CorruptData(
            f"a part is missing or torn while {doing}: {names}",
            hint="compare the part's size and digest with its manifest: `tideline inspect`",
        )
    if is_conflict(error):
        return Unavailable(f"other writers of the table were faster while {doing}: {names}")
    return Unavailable(
        f"Spark failed while {doing}: {names}", hint="Spark's own log has the details"
    )


def _names(text: str) -> list[str]:
    """Conditions and classes named in a failure, outermost first, without repetition."""
    found = [*_CONDITION.findall(text), *_CLASS.findall(text)]
    return list(dict.fromkeys(found))[:_NAMES_MAX]
