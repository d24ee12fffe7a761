"""Spark's exceptions, told apart by name only: their messages can hold row values.

What leaves this module is an exception's class and condition (``[CAST_OVERFLOW]``), never its text.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
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
_MENDABLE = (
    # The store, or what is between.
    "ConnectException",
    "ConnectTimeoutException",
    "SocketException",
    "SocketTimeoutException",
    "UnknownHostException",
    "NoRouteToHostException",
    "NoHttpResponseException",
    "SSLException",
    "AWSServiceIOException",
    "AWSStatus500Exception",
    "AWSServiceThrottledException",
    "SdkClientException",
    "ClosedByInterruptException",
    # The machine.
    "No space left on device",
    "Disk quota exceeded",
    "Too many open files",
    "Input/output error",
    # The cluster.
    "ExecutorLostFailure",
    "FetchFailed",
)
_NAMES_MAX = 4
_CAUSES_MAX = 10


def is_conflict(error: Exception) -> bool:
    """Whether another writer of the table was faster, so that the run may read it again."""
    text = str(error)
    return any(name in text for name in _CONFLICTS)


def is_mendable(error: Exception) -> bool:
    """Whether the same may succeed later, without anybody changing what is to be done."""
    text = str(error)
    return any(name in text for name in _MENDABLE)


def explain(error: Exception, doing: str) -> TidelineError:
    """One of our six errors for a failure of Spark while ``doing`` something."""
    text = str(error)
    names = ", ".join(_names(error))
    if not is_mendable(error) and any(name in text for name in _UNREADABLE):
        return CorruptData(
            f"a part is missing or torn while {doing}: {names}",
            hint="compare the part's size and digest with its manifest: `tideline inspect`",
        )
    if is_conflict(error):
        return Unavailable(f"other writers of the table were faster while {doing}: {names}")
    return Unavailable(
        f"Spark failed while {doing}: {names}",
        hint="with spark.log.level=ERROR Spark logs the details, which can hold row values",
    )


def _names(error: Exception) -> list[str]:
    """The conditions, else the classes, of a failure and its causes, outermost first."""
    found = [_condition_of(error) or type(error).__name__]
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if cause is None:
            break
        found.append(_condition_of(cause) or str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return list(dict.fromkeys(found))[:_NAMES_MAX]


def _condition_of(error: Any) -> str | None:
    """Spark's name for what is wrong; a Java exception has the method only if it is Spark's own."""
    if isinstance(error, Py4JJavaError):
        return None
    try:
        condition = error.getCondition()
    except (AttributeError, TypeError, Py4JError):
        return None
    return None if condition is None else str(condition)
