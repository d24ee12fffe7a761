"""Iceberg's catalogs of Spark's sessions: each is a client with connections of its own.

Spark makes one for each session, so for each table of a run, and never closes it: a database would
keep its connections until Java happens to collect it. Here the catalogs of sessions that are gone
are closed when the next one is opened.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tideline.contract.target_url import CATALOG

_OPEN: weakref.WeakKeyDictionary[SparkSession, Any] = weakref.WeakKeyDictionary()
_LEFT: deque[Any] = deque()
"""Catalogs whose sessions are gone. A finalizer may run inside another call to Java, and makes none
itself."""


def catalog_of(session: SparkSession) -> Any:
    """Return Iceberg's own catalog of ``session``; its data frames keep that, and so the catalog,
    open."""
    found = _OPEN.get(session)
    if found is None:
        _close_left()
        manager = session._jsparkSession.sessionState().catalogManager()
        found = manager.catalog(CATALOG).icebergCatalog()
        _OPEN[session] = found
        weakref.finalize(session, _LEFT.append, found).atexit = False
    return found


def _close_left() -> None:
    while True:
        try:
            left = _LEFT.popleft()
        except IndexError:
            return
        # Its Java process may be gone, or a catalog of another kind have nothing to close.
        with suppress(Py4JError):
            left.close()
