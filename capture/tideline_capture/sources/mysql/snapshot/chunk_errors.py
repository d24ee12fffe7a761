"""The meaning of the server's error at a chunk for the chunk's request, by the error's number."""

from __future__ import annotations

from collections.abc import Callable

import pymysql
from pymysql.constants import ER

from tideline.contract.schema import parse_table
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.sources.chunks import GONE
from tideline_capture.sources.mysql.names import qualified

_NO_TABLE = (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE)
_DENIED = (ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR)
_DAMAGED = (126, 127, 144, 145, 1034, 1194, 1195)
"""Errors of a table that a server left half written when it was killed: numbers below 1000 are the
storage engine's own. It is repaired when it is opened, or by its owner."""
_PASSING = {
    **dict.fromkeys(_DAMAGED, "the table is damaged, and is to be repaired"),
    1020: "the server takes the rows for changed",
    1021: "the server's disk is full",
    1037: "the server is out of memory",
    1038: "the server is out of memory for sorting",
    1041: "the server is out of memory",
    1205: "the table is locked",
    1213: "a deadlock",
    1317: "the statement was ended by someone",
    1412: "the table was altered since the snapshot",
    1969: "the statement took longer than the server lets it",
    3024: "the statement took longer than the server lets it",
}
"""Errors that may not recur the next time, on the same connection."""
_ENDED = (ER.SERVER_SHUTDOWN, 1927, 3169, 4031)
"""Errors with which the server ends a connection: killed, or unused for too long."""


def number_of(error: pymysql.Error) -> int:
    """Return the server's number of an error; 0 for one of the driver's own."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def ends_connection(error: pymysql.Error) -> bool:
    """Return whether the server has ended the connection with it."""
    return number_of(error) in _ENDED


def failure_of(order: ChunkOrder, error: pymysql.Error, account: Callable[[], str]) -> ChunkFailed:
    """Return the chunk's failure. ``account``: the user, as an SQL name. The server's text may hold
    values: it is left out."""
    number = number_of(error)
    if number in _NO_TABLE:
        return ChunkFailed(order.token, GONE, None, retry=False)
    if number in _DENIED:
        hint = f"GRANT SELECT ON {qualified(parse_table(order.table))} TO {account()}"
        return ChunkFailed(order.token, "the user may not read the table", hint, retry=False)
    if number in _PASSING:
        return ChunkFailed(order.token, _PASSING[number], None, retry=True)
    return ChunkFailed(order.token, f"reading failed (error {number})", None, retry=False)
