"""Parses the files of a Delta table's log; Spark jobs read them through Java, the planner does
not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tideline.contract.errors import CorruptData
from tideline.contract.external_commits import RESTORE, TableCommit
from tideline.contract.plan import CommitMetadata

LOG_FOLDER = "_delta_log"
DELETION_VECTORS = "delta.enableDeletionVectors"
"""The table property by which files may have deletion vectors."""
_OTHER_VALUES = frozenset({"DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS"})
"""Operations that touch no file, but after which rows have other values under a column's name. Two
columns that were renamed into each other's names look as they did before."""

_NOT_A_COMMIT = (
    *(ValueError, TypeError, LookupError, AttributeError, RecursionError),
    CorruptData,
)
"""The errors of lines that are no JSON, or not of the shape of Delta's protocol, or that hold a
damaged `CommitMetadata`."""


def commit_file(version: int) -> str:
    """Return the path of a commit's file below the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def parse_commit(version: int, raw: bytes, at_us: int = 0) -> TableCommit:
    """Parse a commit from its file's lines; CorruptData, with the version, for lines that are
    none."""
    try:
        return _parsed(version, raw, at_us)
    except _NOT_A_COMMIT as error:
        raise CorruptData(
            f"version {version} in the log of a table cannot be read: {type(error).__name__}",
            hint=f"look at {commit_file(version)}: the last writer of the table has left it torn,"
            " or damaged",
        ) from error


def _parsed(version: int, raw: bytes, at_us: int) -> TableCommit:
    info: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    changes_data = False
    for line in raw.splitlines():
        action = json.loads(line)
        info = action.get("commitInfo", info)
        if "txn" in action:
            numbers[action["txn"]["appId"]] = int(action["txn"]["version"])
        for kind in ("add", "remove"):
            changes_data = changes_data or bool(action.get(kind, {}).get("dataChange", False))
    operation = str(info.get("operation", "unknown"))
    return TableCommit(
        version=version,
        operation=operation,
        restored_to=_restored_to(operation, info.get("operationParameters", {})),
        changes_data=changes_data or operation in _OTHER_VALUES,
        numbers=numbers,
        commit_metadata=CommitMetadata.parse(info.get("userMetadata")),
        rows_written=int(info.get("operationMetrics", {}).get("numOutputRows", 0)),
        at_us=at_us,
    )


def _restored_to(operation: str, parameters: Mapping[str, Any]) -> int | None:
    version = str(parameters.get("version"))
    return int(version) if operation == RESTORE and version.isdecimal() else None
