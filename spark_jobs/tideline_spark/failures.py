"""Classifies Spark's exceptions by name only, because their messages can hold row values.

Only an exception's class and condition (``[CAST_OVERFLOW]``) leave this module, never its text,
but to where an operator asks for it (`failure_texts`).
"""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
    Py4JNetworkError,
)
from pyspark.errors import PySparkException

from tideline.contract.errors import (
    CorruptData,
    InvariantBroken,
    Misconfigured,
    TidelineError,
    Unavailable,
)
from tideline_spark.failure_texts import HINT, keep_text
from tideline_spark.formats.registry import FORMATS
from tideline_spark.partition_values import REFUSED
from tideline_spark.s3_refusals import refusal_of

SparkFailure = (Py4JJavaError, PySparkException)
"""Exceptions that a call into Spark raises; catch these, then use `is_conflict` or `explain`."""

_CONFLICTS = (
    "TABLE_OR_VIEW_ALREADY_EXISTS",
    # Two runs took the same schema step.
    "FIELD_ALREADY_EXISTS",
    "FIELDS_ALREADY_EXISTS",
)
_UNREADABLE = (
    "PATH_NOT_FOUND",
    "FAILED_READ_FILE",
    "CANNOT_READ_FILE_FOOTER",
    "FileNotFoundException",
    "is not a Parquet file",
)
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_UNMAPPABLE = "unmappable characters"
"""Java's locale lacks a character of a file's name: the value of a partition column is in it."""
_AWAY = (
    # The store, or the network.
    "ConnectException",
    "ConnectTimeoutException",
    "SocketException",
    "SocketTimeoutException",
    "ApiCallTimeoutException",
    "ApiCallAttemptTimeoutException",
    "UnknownHostException",
    "NoRouteToHostException",
    "NoHttpResponseException",
    "SSLException",
    "AWSStatus500Exception",
    "AWSServiceThrottledException",
    "SdkClientException",
)
_MENDABLE = (
    *_AWAY,
    "AWSServiceIOException",
    "ClosedByInterruptException",
    # The machine.
    *_FULL,
    "Too many open files",
    "Input/output error",
    # The cluster.
    "ExecutorLostFailure",
    "FetchFailed",
)
_RAISED = f"[USER_RAISED_EXCEPTION] {REFUSED}"
"""As it is raised: other failures show plans, in which the text alone is."""
_PARTITION = re.compile(r"([^/=]+)=[^/]*(?=/)")
_NO_MEMORY = ("OutOfMemoryError", "CANNOT_ACQUIRE_MEMORY", "Not enough memory to build")
_LASTING = ("22", "42")
"""Classes of SQL states: values that an expression refuses, and statements that do not fit their
tables. The same rows and tables have them again."""
_JVM_GONE = (Py4JNetworkError, ConnectionError, EOFError)
"""Exceptions that a call into Java raises when no Java process answers; see `_unanswered`, too."""
_UNANSWERED = re.compile(r"An error occurred while calling \S+")
"""The whole text that py4j raises for an answer that it did not get: it logs why."""
_NAMES_MAX = 4
_CAUSES_MAX = 10


def is_conflict(error: Exception) -> bool:
    """Return whether another writer of the table was faster, so that the run may retry."""
    text, formats = str(error), FORMATS.values()
    named = itertools.chain(_CONFLICTS, *(one.conflicts for one in formats))
    return any(name in text for name in named)


def is_null_refused(error: Exception) -> bool:
    """Return whether a write was refused for a NULL in a NOT NULL column."""
    text = str(error)
    return any(name in text for one in FORMATS.values() for name in one.null_refused)


def is_mendable(error: Exception) -> bool:
    """Return whether the same work may succeed later unchanged."""
    text = str(error)
    if refusal_of(_with_causes(error)) is not None:
        return False  # S3A's exception for no credentials names one that may pass, too.
    return any(name in text for name in _MENDABLE)


def explain(error: Exception, doing: str) -> TidelineError:
    """Convert a failure of Spark while ``doing`` something to one of our six errors."""
    keep_text(error, doing)
    text = str(error)
    names = ", ".join(_names(error))
    if (refusal := refusal_of(_with_causes(error))) is not None:
        return refusal.error(doing)
    if any(name in text for name in _FULL):
        return Unavailable(
            f"there is no room left to write while {doing}: {names}",
            hint="make room where the warehouse lies and where Spark spills (spark.local.dir), and"
            " run it again: the table is as it was",
        )
    if not is_mendable(error) and any(name in text for name in _UNREADABLE):
        file = _file_of(error)
        return CorruptData(
            f"a part is missing or torn while {doing}: {names}{f': {file}' if file else ''}",
            hint="restore it from a copy of the store, and run it again; `tideline inspect` shows"
            " the size and digest that its manifest names",
        )
    if _RAISED in text:
        return Misconfigured(
            "a row has a text in a partition column that is not kept there (an empty one,"
            " __HIVE_DEFAULT_PARTITION__, one with a NUL character, or too long for the name of a"
            f" folder) while {doing}",
            hint="leave that column out of partition_by, and run `tideline rebuild` if the table is"
            " made (docs/LAYOUT.md); the table is as it was",
        )
    if _UNMAPPABLE in text:
        return Misconfigured(
            f"Java cannot write the name of a partition's folder in its locale while {doing}",
            hint="run merges with LC_ALL=C.UTF-8, and executors too; the table is as it was",
        )
    if is_conflict(error):
        return Unavailable(f"other writers of the table were faster while {doing}: {names}")
    if any(name in text for name in _NO_MEMORY):
        return Unavailable(
            f"Spark ran out of memory while {doing}: {names}",
            hint="give it more (merge.driver_memory, merge.executor_memory), or have less merged at"
            " once (merge.bytes_max)",
        )
    if any(name in _AWAY for name in _classes(error)):
        return Unavailable(
            f"a server gave no usable answer, or none in time, while {doing}: {names}",
            hint="look at the store, at the cluster and at the way to them; a request to S3 that"
            " is not answered within store.timeout_s is repeated a few times"
            " (docs/DEPLOYMENT.md#what-spark-does-when-s3-refuses-or-is-silent)",
        )
    return _unknown(error, doing, names)


def _unknown(error: Exception, doing: str, names: str) -> TidelineError:
    """Convert a failure that no one has a remedy for: by whether the same work can succeed."""
    if not is_mendable(error) and any(map(_is_lasting, _with_causes(error))):
        return InvariantBroken(
            f"Spark refused a statement, or a value in it, while {doing}: {names}",
            hint="a bug of Tideline's, unless another program was changing the table: run it again,"
            f" and report what stays. {HINT}",
        )
    return Unavailable(f"Spark failed while {doing}: {names}", hint=f"run it again; {HINT}")


def unexpected(error: Exception, doing: str) -> TidelineError:
    """Convert any exception raised while ``doing`` something to one of our six errors."""
    if isinstance(error, TidelineError):
        return error
    if isinstance(error, SparkFailure):
        return explain(error, doing)
    name = type(error).__name__
    if isinstance(error, _JVM_GONE) or _unanswered(error):
        return Unavailable(
            f"Spark's Java process does not answer while {doing}: {name}",
            hint="it was ended, for instance because memory ran out: look at its log and at the"
            " machine's, and run it again",
        )
    # The text may hold a row's value; the location does not.
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return InvariantBroken(
        f"{name}{at} while {doing}", hint="a bug of Tideline's: report it with this place"
    )


def _unanswered(error: Exception) -> bool:
    """Return whether the connection of a call into Java broke before its answer."""
    return type(error) is Py4JError and _UNANSWERED.fullmatch(str(error)) is not None


def _file_of(error: Exception) -> str | None:
    """Return the unreadable file, where Spark names it in a parameter of its condition; without the
    values of partition columns, which are names of its folders."""
    for one in _with_causes(error):
        try:
            parameters = dict(one.getMessageParameters() or {})
        except (AttributeError, TypeError, Py4JError):
            continue
        for name in ("path", "file"):
            if name in parameters:
                return _PARTITION.sub(r"\1=…", str(parameters[name]))
    return None


def _with_causes(error: Exception) -> Iterator[Any]:
    """Yield the error and its Java causes, outermost first."""
    yield error
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if cause is None:
            break
        yield cause
        cause = cause.getCause()


def _classes(error: Exception) -> Iterator[str]:
    """Yield the Java classes of a failure and its causes, outermost first."""
    for one in itertools.islice(_with_causes(error), 1, None):
        yield str(one.getClass().getSimpleName())


def _names(error: Exception) -> list[str]:
    """Return the conditions, else the classes, of a failure and its causes, outermost first."""
    _, *causes = _with_causes(error)
    found = [_condition_of(error) or type(error).__name__]
    found += [_condition_of(one) or str(one.getClass().getSimpleName()) for one in causes]
    return list(dict.fromkeys(found))[:_NAMES_MAX]


def _is_lasting(error: Any) -> bool:
    """Return whether a failure or one of its causes has a SQL state of `_LASTING`."""
    if isinstance(error, Py4JJavaError):
        return False  # Its Java exception is among the causes.
    try:
        state = error.getSqlState()
    except (AttributeError, TypeError, Py4JError):
        return False
    return str(state or "").startswith(_LASTING)


def _condition_of(error: Any) -> str | None:
    """Return Spark's error condition; only Spark's own Java exceptions have the method."""
    if isinstance(error, Py4JJavaError):
        return None
    try:
        condition = error.getCondition()
    except (AttributeError, TypeError, Py4JError):
        return None
    return None if condition is None else str(condition)
