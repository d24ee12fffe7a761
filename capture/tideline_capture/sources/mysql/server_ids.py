"""Names of servers: the source's own for itself, and the id under which the worker reads its log.

The server ends the older of two streams with one id, so it must be unique: it is derived from
pipeline, incarnation and term, lies above the numbers that people give to servers, and is compared
with the server's own and those of the replicas that are registered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import pymysql
from pymysql.constants import ER

_FIRST = 1 << 31
_COUNT = (1 << 31) - 1
_LISTS = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
"""MySQL from 8.0.22 on; the other is for MySQL before that, and MariaDB."""
_NOT_SHOWN = (ER.PARSE_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR)


def server_name(cursor: Any, flavour: str) -> str:
    """Return the server's name for itself: ``server_uuid`` of MySQL, ``server_uid`` of MariaDB.
    Releases of MariaDB without one are identified by where they listen, and their server id."""
    if flavour == "mysql":
        cursor.execute("SELECT @@GLOBAL.server_uuid")
        return str(cursor.fetchone()[0])
    cursor.execute("SHOW GLOBAL VARIABLES LIKE 'server_uid'")
    row = cursor.fetchone()
    if row is None:
        cursor.execute("SELECT CONCAT(@@hostname, ':', @@port, '/', @@GLOBAL.server_id)")
        row = (None, cursor.fetchone()[0])
    return str(row[1])


class ServerIds:
    """One id per stream and term: so the server ends the stream that ours replaces, which it would
    otherwise notice only later. ``rivals`` are ids that another client turned out to have: their
    streams get the next one, or the two would end each other for ever."""

    def __init__(self) -> None:
        self.rivals: set[int] = set()
        self._known: dict[tuple[str, int], int] = {}

    def known(self, name: str, term: int) -> int | None:
        """Return the id of the stream ``name`` in ``term``, if one was found that is still free."""
        known = self._known.get((name, term))
        return None if known in self.rivals else known

    def find(self, cursor: Any, name: str, term: int) -> int:
        """Find that id: one that no other client has, as far as visible."""
        found = self._known[name, term] = free_server_id(cursor, name, term, taken=self.rivals)
        return found


def free_server_id(cursor: Any, name: str, term: int, *, taken: Collection[int] = ()) -> int:
    """Return an id for the stream ``name`` in ``term`` that no other client has, as far as visible.

    A list that the user may not see is taken to be empty (on MariaDB from 10.5 on it takes the
    right REPLICATION MASTER ADMIN). ``taken`` are ids that another client was found to have all the
    same.
    """
    digest = hashlib.sha256(name.encode()).digest()
    wanted = (int.from_bytes(digest[:4], "little") + term) % _COUNT
    seen = _taken(cursor) | set(taken)
    while _FIRST + wanted in seen:
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
