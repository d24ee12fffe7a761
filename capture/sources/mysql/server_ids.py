"""The id under which the worker reads the log.

The server ends the older of two streams with one id, so it must be nobody else's: it is derived
from pipeline, incarnation and term, lies above the numbers that people give to servers, and is
compared with the server's own and those of the replicas that are registered.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pymysql
from pymysql.constants import ER

_FIRST = 1 << 31
_COUNT = (1 << 31) - 1
_LISTS = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
"""MySQL from 8.0.22 on; before that, and MariaDB."""
_NOT_SHOWN = (ER.PARSE_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR)


def free_server_id(cursor: Any, name: str, term: int) -> int:
    """An id for the stream ``name`` in ``term`` that no other one has, as far as can be seen: a
    list that the user may not see is taken to be empty."""
    digest = hashlib.sha256(name.encode()).digest()
    wanted = (int.from_bytes(digest[:4], "little") + term) % _COUNT
    taken = _taken(cursor)
    while _FIRST + wanted in taken:
        wanted = (wanted + 1) % _COUNT
    return _FIRST + wanted


def _taken(cursor: Any) -> set[int]:
    cursor.execute("SELECT @@GLOBAL.server_id")
    taken = {int(cursor.fetchone()[0])}
    for statement in _LISTS:
        try:
            cursor.execute(statement)
        except pymysql.Error as error:
            if error.args[0] not in _NOT_SHOWN:
                raise
        else:
            return taken | {int(row[0]) for row in cursor.fetchall()}
    return taken
