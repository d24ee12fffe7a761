"""The traces that a pipeline leaves at a PostgreSQL: its slot, which makes the server keep its log,
and its publication."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.errors

from tideline.contract.errors import Misconfigured
from tideline.settings import Settings
from tideline_capture.sources.administration import Removal
from tideline_capture.sources.postgres.checks.facts import SlotFacts, read_publication, read_slot
from tideline_capture.sources.postgres.connect import connect, query_failed, querying
from tideline_capture.sources.postgres.names import publication_name, quoted, slot_name

_GONE = (psycopg2.errors.UndefinedObject,)
_DROP_SLOT = "SELECT pg_catalog.pg_drop_replication_slot('{slot}')"


def removals(settings: Settings) -> list[Removal]:
    """See `Administration.removals`: the slot first, as it costs the server while it is there."""
    slot, publication = slot_name(settings), publication_name(settings)
    with closing(_connect(settings)) as connection, querying():
        slot_facts = read_slot(connection, slot)
        published = read_publication(connection, publication)
        database = connection.info.dbname
    found = []
    if slot_facts is not None:
        _check_slot(slot, slot_facts, database)
        kept = slot_facts.retained_bytes or 0
        what = f"the replication slot {slot}, for which the server keeps {kept / 1e6:,.1f} MB"
        found.append(_removal(settings, "slot", what, _DROP_SLOT.format(slot=slot)))
    if published is not None:
        what = f"the publication {publication} of {len(published.published)} tables"
        statement = f"DROP PUBLICATION IF EXISTS {quoted(publication)}"
        found.append(_removal(settings, "publication", what, statement))
    return found


def _check_slot(name: str, slot: SlotFacts, database: str) -> None:
    if slot.plugin != "pgoutput" or slot.database != database:
        raise Misconfigured(
            f"the replication slot {name} is of {slot.plugin} on database {slot.database!r}, so not"
            " this pipeline's",
            hint="set source.slot or source.url as they were while it ran",
        )
    if slot.active_pid is not None:
        raise Misconfigured(
            f"the replication slot {name} is being read by the process {slot.active_pid}",
            hint="stop the worker first (SIGTERM)",
        )


def _removal(settings: Settings, name: str, what: str, statement: str) -> Removal:
    def remove() -> None:
        with closing(_connect(settings)) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except _GONE:
                return
            except psycopg2.errors.ObjectInUse:
                raise Misconfigured(
                    f"{what} is in use", hint="stop the worker first (SIGTERM)"
                ) from None
            except psycopg2.errors.InsufficientPrivilege:
                raise Misconfigured(
                    f"the role may not remove {what}",
                    hint=f"let its owner or a superuser run: {statement};",
                ) from None
            except psycopg2.Error as error:
                raise query_failed(error) from None

    return Removal(name, what, remove)


def _connect(settings: Settings) -> Any:
    name = f"tideline delete-pipeline {settings.pipeline}"
    return connect(settings.source, application_name=name)
