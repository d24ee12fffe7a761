"""Checks the project of BigQuery tables: client, credentials, location, and permissions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from tideline.contract.errors import TidelineError
from tideline.contract.schema import parse_table
from tideline.contract.target_url import BIGQUERY, table_format_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline.warehouse.bigquery.names import name_of
from tideline.warehouse.bigquery.probe import (
    EMULATOR,
    PERSON,
    credentials_kind,
    probe_dataset,
    probe_new_dataset,
)
from tideline_capture.sources.finding import Finding, ok, warning
from tideline_console.checks import attempt, impatient

_CAN = "can be made, loaded, merged into, read and dropped"


def check_bigquery(settings: Settings, *, grave: bool = False) -> Iterator[Finding]:
    """Yield the findings; none for a pipeline that names no project. With ``grave`` what keeps
    merges from running is an error: capture does without.

    Makes a table in each dataset of the pipeline's tables and drops it, and where one of these is
    not there, or none is known yet, a dataset as well.
    """
    if BIGQUERY not in settings.formats_held:
        return
    found = attempt("bigquery_credentials", lambda: [_credentials(settings)], grave=grave)
    yield from found
    if found[0].level != "ok" and PERSON not in found[0].message:
        return
    known = _datasets(settings)
    absent = [] if known else [""]
    for dataset in known:
        yield from attempt("bigquery", partial(_existing, settings, dataset, absent), grave=grave)
    if absent:
        yield from attempt("bigquery", partial(_new, settings, absent), grave=grave)


def _credentials(settings: Settings) -> Finding:
    place = BigQueryPlace.of(settings.warehouse_storage)
    kind = credentials_kind(place)
    source = place.credentials_file or "the application default ones"
    of = "" if kind == EMULATOR else f" of {source},"
    text = f"{kind},{of} for the project {place.project}"
    if kind != PERSON:
        return ok("bigquery_credentials", text)
    fix = "use a service account or a workload identity where merges run by themselves"
    return warning("bigquery_credentials", f"{text}: merges run with that person's rights", fix)


def _existing(settings: Settings, dataset: str, absent: list[str]) -> list[Finding]:
    place = BigQueryPlace.of(settings.warehouse_storage)
    if not probe_dataset(place, dataset):
        absent.append(dataset)
        return []
    return [ok("bigquery", f"tables {_CAN} in {place.project}.{dataset} ({place.location})")]


def _new(settings: Settings, absent: list[str]) -> list[Finding]:
    place = BigQueryPlace.of(settings.warehouse_storage)
    probe_new_dataset(place, settings.warehouse.bigquery.dataset_prefix)
    named = ", ".join(filter(None, absent)) or "as tables need them"
    text = f"datasets can be made in {place.project} ({place.location}): {named}; tables {_CAN}"
    return [ok("bigquery", text)]


def _datasets(settings: Settings) -> list[str]:
    """Return the datasets of the chain's tables; none where it cannot be read, which has a finding
    of its own."""
    with suppress(TidelineError):
        chain = Chain(open_store(impatient(settings.store)), settings.pipeline)
        tail = chain.tail()
        known = {} if tail is None else chain.open_state(tail).tables
        urls = [
            settings.target_url(parse_table(name))
            for name, table in known.items()
            if not table.removed
        ]
        ours = [url for url in urls if table_format_of(url) == BIGQUERY]
        return sorted({name_of(url).dataset for url in ours})
    return []
